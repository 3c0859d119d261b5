// A model's logits by the shortest way: one token after another, every number a double, nothing shared with the ops but
// the decoding of weights. It tells whether the layers are put together right.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "model/description.h"
#include "quant/codec.h"

namespace conclave::testing {

using Vec = std::vector<double>;

class PlainForward {
 public:
  explicit PlainForward(const gguf::File& file) : file_(file), model_(describe_model(file)), c_(model_.config) {}

  // [n_tokens][n_vocab]
  std::vector<Vec> logits(const std::vector<std::int32_t>& ids) {
    keys_.assign(static_cast<std::size_t>(c_.n_layers), {});
    values_ = keys_;
    std::vector<Vec> rows;
    const Vec embedding = weights(model_.tensors.token_embd);
    const Vec head = weights(model_.tensors.output);
    const Vec output_norm = weights(model_.tensors.output_norm);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      const auto begin = embedding.begin() + ids[t] * c_.d_model;
      Vec x(begin, begin + c_.d_model);
      for (std::size_t i = 0; i < model_.tensors.layers.size(); ++i) {
        attention(i, static_cast<double>(t), x);
        experts(model_.tensors.layers[i], x);
      }
      rows.push_back(product(head, norm(x, output_norm)));
    }
    return rows;
  }

 private:
  Vec weights(TensorRef info) const {
    const std::int64_t n = std::accumulate(info->dims.begin(), info->dims.end(), std::int64_t{1}, std::multiplies<>());
    std::vector<float> values(static_cast<std::size_t>(n));
    decode(*info->type->dtype, file_.data(*info), values);
    return {values.begin(), values.end()};
  }
  static Vec product(const Vec& w, const Vec& x, std::size_t first_row = 0, std::size_t n_rows = 0) {
    if (n_rows == 0) n_rows = w.size() / x.size();
    Vec y(n_rows);
    for (std::size_t r = 0; r < n_rows; ++r) {
      const auto row = w.begin() + static_cast<std::ptrdiff_t>((first_row + r) * x.size());
      y[r] = std::inner_product(x.begin(), x.end(), row, 0.0);
    }
    return y;
  }
  // Each run of w.size() elements for itself.
  Vec norm(Vec x, const Vec& w) const {
    for (std::size_t begin = 0; begin < x.size(); begin += w.size()) {
      double squares = 0;
      for (std::size_t i = 0; i < w.size(); ++i) squares += x[begin + i] * x[begin + i];
      const double by = std::sqrt(squares / static_cast<double>(w.size()) + static_cast<double>(c_.norm_eps));
      for (std::size_t i = 0; i < w.size(); ++i) x[begin + i] *= w[i] / by;
    }
    return x;
  }
  static double silu(double x) { return x / (1 + std::exp(-x)); }

  double frequency(std::int64_t pair) const {
    const RopeConfig& r = c_.rope;
    const double n = static_cast<double>(r.n_dims);
    const double base = static_cast<double>(r.base);
    const double f = std::pow(base, -2.0 * static_cast<double>(pair) / n);
    if (r.scaling == RopeScaling::none) return f;
    const double slow = f / static_cast<double>(r.factor);
    if (r.scaling == RopeScaling::linear) return slow;
    const auto place = [&](float turns) {
      const double length = 2 * std::numbers::pi * static_cast<double>(turns);
      return n * std::log(static_cast<double>(r.original_context) / length) / (2 * std::log(base));
    };
    const double low = std::max(std::floor(place(r.beta_fast)), 0.0);
    const double high = std::min(std::ceil(place(r.beta_slow)), n - 1);
    const double share = std::clamp((static_cast<double>(pair) - low) / std::max(high - low, 0.001), 0.0, 1.0);
    return f * (1 - share) + slow * share;
  }
  void rotate(Vec& heads, double position) const {
    const RopeConfig& r = c_.rope;
    const bool yarn = r.scaling == RopeScaling::yarn;
    const double size = yarn ? 1 + 0.1 * std::log(static_cast<double>(r.factor)) : 1.0;
    for (std::int64_t head = 0; head < static_cast<std::int64_t>(heads.size()); head += c_.attention.d_head) {
      for (std::int64_t i = 0; i < r.n_dims / 2; ++i) {
        const bool neox = r.style == RopeStyle::neox;
        double& a = heads[static_cast<std::size_t>(head + (neox ? i : 2 * i))];
        double& b = heads[static_cast<std::size_t>(head + (neox ? i + r.n_dims / 2 : 2 * i + 1))];
        const double angle = position * frequency(i);
        const double turned = size * (a * std::cos(angle) - b * std::sin(angle));
        b = size * (a * std::sin(angle) + b * std::cos(angle));
        a = turned;
      }
    }
  }

  Vec projection(TensorRef w, TensorRef bias, TensorRef norm_weight, const Vec& x) const {
    Vec y = product(weights(w), x);
    if (bias != nullptr) std::transform(y.begin(), y.end(), weights(bias).begin(), y.begin(), std::plus<>());
    return norm_weight == nullptr ? y : norm(std::move(y), weights(norm_weight));
  }
  void attention(std::size_t layer, double position, Vec& x) {
    const LayerTensors& w = model_.tensors.layers[layer];
    const auto d = static_cast<std::size_t>(c_.attention.d_head);
    const Vec in = norm(x, weights(w.attn_norm));
    Vec q = projection(w.attn_q, w.q_bias, w.q_norm, in);
    Vec k = projection(w.attn_k, w.k_bias, w.k_norm, in);
    rotate(q, position);
    rotate(k, position);
    keys_[layer].push_back(k);
    values_[layer].push_back(projection(w.attn_v, w.v_bias, nullptr, in));
    Vec seen(q.size());
    const auto shared_by = static_cast<std::size_t>(c_.attention.n_heads / c_.attention.n_kv_heads);
    for (std::size_t head = 0; head < q.size() / d; ++head) {
      const std::size_t kv = head / shared_by * d;
      Vec weight;
      double sum = 0;
      for (const Vec& key : keys_[layer]) {
        const double dot = std::inner_product(key.begin() + static_cast<std::ptrdiff_t>(kv),
                                              key.begin() + static_cast<std::ptrdiff_t>(kv + d),
                                              q.begin() + static_cast<std::ptrdiff_t>(head * d), 0.0);
        weight.push_back(std::exp(dot / std::sqrt(static_cast<double>(d))));
        sum += weight.back();
      }
      for (std::size_t j = 0; j < weight.size(); ++j) {
        for (std::size_t i = 0; i < d; ++i) seen[head * d + i] += weight[j] / sum * values_[layer][j][kv + i];
      }
    }
    const Vec out = product(weights(w.attn_out), seen);
    std::transform(x.begin(), x.end(), out.begin(), x.begin(), std::plus<>());
  }

  static void add_expert(const Vec& x, const Vec& gate, const Vec& up, const Vec& down, double weight, Vec& y) {
    Vec hidden = gate;
    for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = silu(gate[i]) * up[i];
    const Vec out = product(down, hidden);
    for (std::size_t i = 0; i < x.size(); ++i) y[i] += weight * out[i];
  }
  static Vec part(const Vec& stack, std::size_t index, std::size_t count) {
    const std::size_t size = stack.size() / count;
    const auto begin = stack.begin() + static_cast<std::ptrdiff_t>(index * size);
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }
  void experts(const LayerTensors& w, Vec& x) const {
    const Vec in = norm(x, weights(w.ffn_norm));
    Vec score = product(weights(w.router), in);
    double all = 0;
    for (double& s : score) all += s = std::exp(s);
    std::vector<std::size_t> order(score.size());
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    order.resize(static_cast<std::size_t>(c_.experts.rule.top_k));
    if (c_.experts.rule.renormalize) {
      all = 0;
      for (const std::size_t e : order) all += score[e];
    }
    const Vec gate = weights(w.gate);
    const Vec up = weights(w.up);
    const Vec down = weights(w.down);
    for (const std::size_t e : order) {
      const std::size_t n = score.size();
      add_expert(in, product(part(gate, e, n), in), product(part(up, e, n), in), part(down, e, n), score[e] / all, x);
    }
    if (w.shared_gate == nullptr) return;
    const double share = 1 / (1 + std::exp(-product(weights(w.shared_router), in)[0]));
    add_expert(in, product(weights(w.shared_gate), in), product(weights(w.shared_up), in), weights(w.shared_down),
               share, x);
  }

  const gguf::File& file_;
  ModelDescription model_;
  const ModelConfig& c_;
  std::vector<std::vector<Vec>> keys_;  // [layer][position]
  std::vector<std::vector<Vec>> values_;
};

}  // namespace conclave::testing
