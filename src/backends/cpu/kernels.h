// The table of kernels: one row per instruction set, chosen once. A row is filled from the templates of
// src/backends/cpu/kernels, instantiated with the instruction set's vector type; what it borrows is visible in its
// kernels.cpp.
#pragma once

#include <span>
#include <string_view>

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/product_kernels.h"
#include "backends/cpu/row_kernels.h"

namespace conclave {

struct CpuKernels {
  std::string_view name;
  ProductKernels product;
  RowKernels row;
  AttentionKernels attention;
};

// A row, and whether this machine and its system can execute it. (The question is not part of the row: it must be asked
// by code that any machine can execute.)
struct CpuRow {
  const CpuKernels* kernels;
  bool (*runs_here)();
};
// Best first. Those of other machines' architectures are not in the list.
std::span<const CpuRow> cpu_rows();
// The best that runs here; `forced` (the value of CONCLAVE_CPU) names one. Throws where there is none of that name, or
// it does not run here.
const CpuKernels& choose_cpu_kernels(std::string_view forced = {});

}  // namespace conclave
