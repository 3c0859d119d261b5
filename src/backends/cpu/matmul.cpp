#include "backends/cpu/matmul.h"

#include <algorithm>
#include <vector>

#include "backends/cpu/expert_product.h"

namespace conclave {
namespace {

ExpertProduct product_of(const Matmul& op, const CpuKernels& kernels) {
  return {{.x = op.x, .w = as_stack(op.w), .bias = op.bias, .out = op.out}, every_row(op.x.dim(0), op.live), kernels};
}

// One op that is one product.
class ProductOp final : public CpuOp {
 public:
  explicit ProductOp(ExpertProduct product) : product_(std::move(product)) {}
  ProductOp(const ProductSpec& spec, std::unique_ptr<RowLists> lists, const CpuKernels& kernels)
      : product_(spec, std::move(lists), kernels) {}
  std::int64_t shared_bytes() const override { return product_.shared_bytes(); }
  std::int64_t local_bytes() const override { return product_.local_bytes(); }
  void run(const CpuRun& run) const override { product_.run(run); }

 private:
  ExpertProduct product_;
};

// Products that do not need each other: threads go from one to the next without waiting for one another.
class Matmuls final : public CpuOp {
 public:
  Matmuls(std::span<const Op> ops, const CpuKernels& kernels) {
    for (const Op& op : ops) {
      products_.push_back(product_of(std::get<Matmul>(op), kernels));
      shared_at_.push_back(shared_.add(1, products_.back().shared_bytes()));
    }
  }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override {
    std::int64_t bytes = 0;
    for (const ExpertProduct& product : products_) bytes = std::max(bytes, product.local_bytes());
    return bytes;
  }

  void run(const CpuRun& run) const override {
    if (run.region.rank() == 0) each(run, [](const ExpertProduct& product, const CpuRun& own) { product.plan(own); });
    const auto rows = [](const ExpertProduct& product, const CpuRun&) { return product.rows_to_fill(); };
    run.region.for_each(total(run, rows), [&](std::int64_t i) {
      const Place at = place(run, rows, i);
      products_[at.product].fill(own_run(run, at.product), at.index);
    });
    each(run, [](const ExpertProduct& product, const CpuRun& own) { product.pack(own); });
    const auto items = [](const ExpertProduct& product, const CpuRun& own) { return product.n_items(own); };
    const std::int64_t n_items = total(run, items);
    run.region.for_each_ahead(n_items, [&](std::int64_t i, std::int64_t next) {
      const Place at = place(run, items, i);
      const Place after = next < n_items ? place(run, items, next) : Place{};
      const bool same = next < n_items && after.product == at.product;
      products_[at.product].multiply_item(own_run(run, at.product), at.index, same ? after.index : -1);
    });
  }

 private:
  CpuRun own_run(const CpuRun& run, std::size_t i) const { return {run.region, run.shared + shared_at_[i], run.local}; }
  template <class Do>
  void each(const CpuRun& run, Do&& work) const {
    for (std::size_t i = 0; i < products_.size(); ++i) work(products_[i], own_run(run, i));
  }
  // Numbers that go through all products: how many there are, and whose one of them is.
  template <class Count>
  std::int64_t total(const CpuRun& run, Count&& count) const {
    std::int64_t sum = 0;
    each(run, [&](const ExpertProduct& product, const CpuRun& own) { sum += count(product, own); });
    return sum;
  }
  struct Place {
    std::size_t product = 0;
    std::int64_t index = 0;
  };
  template <class Count>
  Place place(const CpuRun& run, Count&& count, std::int64_t index) const {
    Place at{.index = index};
    for (;; ++at.product) {
      const std::int64_t here = count(products_[at.product], own_run(run, at.product));
      if (at.index < here) return at;
      at.index -= here;
    }
  }

  std::vector<ExpertProduct> products_;
  ScratchLayout shared_;
  std::vector<std::int64_t> shared_at_;
};

}  // namespace

std::size_t matmuls_together(std::span<const Op> ops) {
  std::size_t n = 0;
  for (; n < ops.size(); ++n) {
    const auto* op = std::get_if<Matmul>(&ops[n]);
    if (op == nullptr) break;
    const bool apart = std::all_of(ops.begin(), ops.begin() + static_cast<std::ptrdiff_t>(n), [&](const Op& before) {
      const auto& other = std::get<Matmul>(before);
      return !overlap_any(other.out, {&op->x, &op->w, &op->bias, &op->live, &op->out}) &&
             !overlap_any(op->out, {&other.x, &other.w, &other.bias, &other.live});
    });
    if (!apart) break;
  }
  return n;
}

std::unique_ptr<CpuOp> make_matmuls(std::span<const Op> ops, const CpuKernels& kernels) {
  return std::make_unique<Matmuls>(ops, kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const Matmul& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(product_of(op, kernels));
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeMatmul& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.w, .out = op.out}, rows_of(op), kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeGateUp& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.gate, .up = op.up, .act = op.act, .out = op.out},
                                     rows_of(op), kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeDown& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.down, .out = op.out}, rows_of(op), kernels);
}

}  // namespace conclave
