// How products are cut: which kernels, how many rows and columns a threadgroup has. Pure functions.
#pragma once

#include "backends/metal/launch.h"

namespace conclave::metal {

// From this many rows of an expert (or of all, where there is one matrix) on, tiles of matrices are worth it.
inline constexpr std::int64_t kManyFrom = 8;

struct ProductPlan {
  bool many = false;
  std::int64_t tile_rows = kFewRows;
  std::int64_t columns = kFewColumns * kFewSimds;  // of a threadgroup; of gate and up, each
  std::uint32_t threads = kFewSimds * kSimdWidth;
  std::int64_t shared_bytes = 0;
};

// `rows` that meet `matrices`, spread evenly.
inline ProductPlan product_plan(const Target& target, std::int64_t rows, std::int64_t matrices, bool gate_up) {
  const bool many = target.products == Target::Products::by_rows
                        ? rows >= kManyFrom * std::max<std::int64_t>(matrices, 1)
                        : target.products == Target::Products::many_rows;
  ProductPlan plan;
  if (many) {
    plan = {.many = true,
            .tile_rows = kTileRows,
            .columns = kTileWeights,
            .threads = kTileThreads,
            .shared_bytes = kTileSharedBytes};
  }
  if (gate_up) plan.columns /= 2;
  return plan;
}

// "few_gate_up_q4_k": the kernel for weights of these types.
inline std::string product_kernel(const ProductPlan& plan, std::string_view what, DType w, DType up) {
  const auto has_own = [](DType type) {
    return is_float(type) || type == DType::q4_k || type == DType::q5_k || type == DType::q6_k || type == DType::q8_0 ||
           type == DType::q4_0 || type == DType::mxfp4;
  };
  const std::string_view format = w == up && has_own(w) ? dtype_info(w).name : "any";
  return fmt::format("{}_{}_{}", plan.many ? "many" : "few", what, format);
}

// Tiles that `rows` over `lists` lists can need.
constexpr std::int64_t max_tiles(std::int64_t rows, std::int64_t lists, std::int64_t tile_rows) {
  return std::min(rows, lists) + rows / tile_rows;
}

// Tiles where the rows are spread evenly over as many lists as they can be.
constexpr std::int64_t even_tiles(std::int64_t rows, std::int64_t lists, std::int64_t tile_rows) {
  const std::int64_t active = std::min(rows, lists);
  return active == 0 ? 0 : active * ceil_div(ceil_div(rows, active), tile_rows);
}
static_assert(even_tiles(8, 128, 4) == 8 && even_tiles(256, 128, 4) == 128 && even_tiles(4096, 128, 4) == 1024);

// The bytes of `active` of the matrices of a weight tensor.
inline double weight_bytes(const Tensor& w, std::int64_t active) {
  const double all = static_cast<double>(row_count(w)) * static_cast<double>(row_bytes(w));
  return w.rank == 3 && w.dim(0) > 0
             ? all * static_cast<double>(std::min(active, w.dim(0))) / static_cast<double>(w.dim(0))
             : all;
}
inline double tensor_bytes(const Tensor& t) {
  return t.defined() ? static_cast<double>(row_count(t)) * static_cast<double>(row_bytes(t)) : 0.0;
}

}  // namespace conclave::metal
