// MetalOp: one op made ready: the kernels that it is made of, with their arguments, geometry and traffic, as plain data.
// Nothing in it depends on contents, and nothing but the addresses of buffers on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "backends/metal/gpu.h"
#include "ops/op.h"

namespace conclave::metal {

// What a GPU can do, as far as plans ask.
struct Target {
  bool has_device_fence = true;
  std::uint32_t max_shared_bytes = 32768;
  // Which product kernels run: by how many rows there are, or always one kind.
  enum class Products { by_rows, few_rows, many_rows };
  Products products = Products::by_rows;
};

// A range of a tensor's buffer, of the program's scratch or of the op's constants.
struct Range {
  enum class In { nothing, buffer, scratch, constants };
  In in = In::nothing;
  const Buffer* buffer = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool writes = false;
};

struct Dispatch {
  std::string kernel;
  std::vector<std::byte> args;
  std::array<Range, kMaxBuffers> ranges{};
  Grid groups;
  std::uint32_t threads = 0;
  bool needs_all_threads = false;  // else the kernel takes fewer, where the GPU has not as many for it
  std::uint32_t shared_bytes = 0;
  std::optional<Range> indirect;
  double bytes = 0;  // read and written at least once, as the plan counts it; of experts, as many as there can be
};

// Something that the host does between kernels: those before it have ended.
struct HostStep {
  std::function<void(std::byte* scratch)> run;
};

struct MetalOp {
  std::vector<std::variant<Dispatch, HostStep>> steps;
  std::int64_t scratch_bytes = 0;
  std::vector<std::byte> constants;
  std::string capture_refusal;  // why it cannot be part of a program that is replayed whole; empty where it can
};

// One per op, in the file of its name or of its family. Throws an Error where the op is refused.
#define CONCLAVE_METAL_OP(Op) MetalOp make_metal_op(const Op& op, const Target& target)
CONCLAVE_METAL_OP(MoeRoute);
CONCLAVE_METAL_OP(MoeRouteToHost);
CONCLAVE_METAL_OP(MoeRoutingUpload);
CONCLAVE_METAL_OP(MoeGroup);
CONCLAVE_METAL_OP(MoePairsByToken);
CONCLAVE_METAL_OP(MoeExpertIds);
CONCLAVE_METAL_OP(MoeAlignBlocks);
CONCLAVE_METAL_OP(MoeMatmul);
CONCLAVE_METAL_OP(MoeGateUp);
CONCLAVE_METAL_OP(SiluMul);
CONCLAVE_METAL_OP(MoeDown);
CONCLAVE_METAL_OP(MoeSharedExpert);
CONCLAVE_METAL_OP(MoeCombine);
CONCLAVE_METAL_OP(MoeCombineResidual);
CONCLAVE_METAL_OP(MoeCombineResidualNorm);
CONCLAVE_METAL_OP(MoeFfn);
CONCLAVE_METAL_OP(Embed);
CONCLAVE_METAL_OP(RmsNorm);
CONCLAVE_METAL_OP(Matmul);
CONCLAVE_METAL_OP(Rope);
CONCLAVE_METAL_OP(KvWrite);
CONCLAVE_METAL_OP(Attention);
CONCLAVE_METAL_OP(Add);
CONCLAVE_METAL_OP(Softmax);
CONCLAVE_METAL_OP(Argmax);
CONCLAVE_METAL_OP(TopK);
#undef CONCLAVE_METAL_OP

}  // namespace conclave::metal
