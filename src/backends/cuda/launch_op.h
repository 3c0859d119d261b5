// LaunchOp: an op that is one launcher with its arguments, all known when it is made, and no scratch. Host code alone.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {

template <class Args>
class LaunchOp final : public CudaOp {
 public:
  using Launch = int (*)(const Args& args, const Stream& stream);

  // `what`: the op's name and shapes, for errors.
  LaunchOp(Launch launch, const Args& args, std::string what) : launch_(launch), args_(args), what_(std::move(what)) {}
  void enqueue(const CudaRun& run) const override { check(launch_(args_, run.stream), what_); }

 private:
  Launch launch_;
  Args args_;
  std::string what_;
};

template <class Args>
std::unique_ptr<CudaOp> launch_op(int (*launch)(const Args&, const Stream&), const Args& args, std::string what) {
  return std::make_unique<LaunchOp<Args>>(launch, args, std::move(what));
}

}  // namespace conclave::cuda
