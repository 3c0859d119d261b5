// What a run must read and compute at least, whatever the kernels do: the bound that its time is held against.
//
// In each chunk of tokens that goes through the model at once:
//
//   weights   all that is not of a routed expert, once; of each layer's routed experts those that some token chose, once;
//             of the embedding a row for each token. The last layer's output projection and experts, and the head, see
//             only tokens whose logits are wanted
//   kv        the cached keys and values of each sequence up to its newest token, once
//   int8 ops  2 m n k of each product with block weights (plain weights and attention are not counted)
//
// Which experts are chosen is taken from the routing of that very run.
#pragma once

#include <cstdint>
#include <vector>

#include "conclave/session.h"
#include "model/description.h"

namespace conclave::bench {

struct Traffic {
  double weight_bytes = 0;
  double kv_bytes = 0;
  double int8_ops = 0;
  double experts = 0;       // distinct ones, over layers and chunks
  std::int64_t layers = 0;  // over chunks: experts / layers is how many a layer reads

  double bytes() const { return weight_bytes + kv_bytes; }
};

class TrafficMeter {
 public:
  TrafficMeter(const ModelDescription& model, double kv_bytes_per_token);

  // A token's experts in a layer. `out`: its logits are wanted.
  void route(const RoutingRow& row, bool out);
  // The chunk is done: of n_tokens, n_out of them with logits, in sequences that have n_cached tokens together.
  void end_chunk(std::int64_t n_tokens, std::int64_t n_out, std::int64_t n_cached);

  const Traffic& total() const { return total_; }

 private:
  struct Product {  // what a weight costs
    double bytes = 0;
    double int8_ops_per_row = 0;
  };
  struct Layer {
    Product every;   // used by all tokens of a chunk
    Product chosen;  // by those that go through the layer's second half
    Product expert;  // one routed expert
  };
  static Product product_of(TensorRef tensor);
  static void add(Product& to, TensorRef tensor);
  void add_work(const Product& product, std::int64_t rows);

  std::vector<Layer> layers_;
  Product head_;
  double embedding_row_bytes_ = 0;
  double kv_bytes_per_token_ = 0;
  std::vector<std::vector<std::int64_t>> pairs_;  // [n_layers][n_experts] of the chunk
  Traffic total_;
};

}  // namespace conclave::bench
