#include "backends/cuda/normed_router.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {
namespace {

bool are_rows(const Tensor& t) {
  return t.rank == 2 && t.dtype == DType::f32 && takes_vectors(view_of(t));
}

}  // namespace

std::optional<NormedRouterArgs> normed_router_of(const RmsNorm& norm, const Matmul& router, const Target& target) {
  constexpr std::int64_t kBeside = 2048;  // shared memory that the kernel has by itself
  const auto is_f32 = [](const Tensor& t) { return !t.defined() || t.dtype == DType::f32; };
  if (target.capability < 90 || !are_rows(norm.x) || !are_rows(norm.out) || !are_rows(router.w) ||
      norm.weight.dtype != DType::f32 || !takes_vectors(view_of(norm.weight)) || !is_f32(router.out) ||
      router.out.rank != 2 || !is_f32(router.bias) || router.x != norm.out || router.live != norm.live) {
    return std::nullopt;
  }
  const std::int64_t rows = norm.x.dim(0);
  const std::int64_t k = norm.x.dim(1);
  const std::int64_t n = router.w.dim(0);
  if (rows < 2 || rows > kRouterTokens || n == 0 || k == 0 || k % kChunk != 0 || k > kRouterLength ||
      overlap_any(norm.out, {&norm.x, &norm.weight, &norm.live, &router.w, &router.bias}) ||
      overlap_any(router.out, {&norm.x, &norm.out, &norm.weight, &norm.live, &router.w, &router.bias})) {
    return std::nullopt;
  }
  const LaunchPlan plan = normed_router_plan(rows, n, k, target.multiprocessors);
  if (plan.blocks > kRouterTurns * target.multiprocessors || plan.shared_bytes + kBeside > target.shared_bytes) {
    return std::nullopt;
  }
  return NormedRouterArgs{.x = data_of<const float>(norm.x),
                          .x_stride = norm.x.stride(0) / 4,
                          .norm_weight = data_of<const float>(norm.weight),
                          .normed = data_of<float>(norm.out),
                          .normed_stride = norm.out.stride(0) / 4,
                          .w = data_of<const float>(router.w),
                          .w_column = router.w.stride(0) / 4,
                          .bias = data_of<const float>(router.bias),
                          .out = data_of<float>(router.out),
                          .out_stride = router.out.stride(0) / 4,
                          .live = ints_of(norm.live),
                          .eps = norm.eps,
                          .rows = static_cast<std::int32_t>(rows),
                          .n = static_cast<std::int32_t>(n),
                          .k = static_cast<std::int32_t>(k),
                          .multiprocessors = target.multiprocessors};
}

}  // namespace conclave::cuda
