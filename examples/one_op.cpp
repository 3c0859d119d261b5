// Ops one by one, for programs with model code of their own: which two of four experts serve each of three tokens?
//
// Every op is a struct with named members (ops/moe_route.h says what this one does). A device validates it and runs it.
#include <backends/cpu/cpu_device.h>
#include <ops/moe_route.h>

#include <cstdio>
#include <vector>

int main() {
  using namespace conclave;
  constexpr std::int64_t n_tokens = 3;
  constexpr std::int64_t n_experts = 4;
  constexpr std::int64_t top_k = 2;
  std::vector<float> logits = {0.1F, 2.0F, 0.3F, 1.0F, 3.0F, 0.0F, 0.5F, 0.4F, 1.0F, 1.0F, 1.0F, 1.0F};
  std::vector<std::int32_t> experts(n_tokens * top_k);
  std::vector<float> weights(n_tokens * top_k);

  // The CPU device works on any host memory.
  const auto view = [](auto& values, DType type, std::int64_t n) {
    auto* data = reinterpret_cast<std::byte*>(values.data());
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(values[0]));
    auto* buffer = new BorrowedBuffer(data, bytes);  // lives as long as this short program
    return dense(*buffer, 0, type, {n_tokens, n});
  };
  CpuDevice device;
  device.run(
      MoeRoute{.logits = view(logits, DType::f32, n_experts),
               .rule = {.top_k = top_k, .score = Score::softmax, .renormalize = true},
               .out = {.experts = view(experts, DType::i32, top_k), .weights = view(weights, DType::f32, top_k)}});

  for (std::size_t t = 0; t < n_tokens; ++t) {
    std::printf("token %zu:", t);
    for (std::size_t s = t * top_k; s < (t + 1) * top_k; ++s) std::printf(" expert %d (%.3f)", experts[s], weights[s]);
    std::printf("\n");
  }
}
