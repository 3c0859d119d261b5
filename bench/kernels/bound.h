// What a row is measured against: the slower of moving its bytes and doing its operations, at this machine's own peaks.
#pragma once

#include <algorithm>
#include <string_view>

namespace conclave::bench {

// Measured in the same run, with the same number of threads. 1 GB is 1e9 bytes; a multiply-add is two operations.
struct Peaks {
  double read_gbps = 0;  // reading the mapping that the weights lie in
  double int8_gops = 0;  // byte dot products on registers, with the row's own instructions
  double f32_gops = 0;   // fused multiply-adds on registers

  Peaks best_of(const Peaks& other) const {
    return {std::max(read_gbps, other.read_gbps), std::max(int8_gops, other.int8_gops),
            std::max(f32_gops, other.f32_gops)};
  }
  Peaks worst_of(const Peaks& other) const {
    return {std::min(read_gbps, other.read_gbps), std::min(int8_gops, other.int8_gops),
            std::min(f32_gops, other.f32_gops)};
  }
};

enum class DotType { int8, f32 };  // what an op's multiply-adds are done in

struct Work {
  double bytes = 0;  // distinct weight bytes that are touched, activations read and written once
  double ops = 0;    // 2 m n k of the rows really computed
  DotType in = DotType::f32;
};

struct Bound {
  double us = 0;
  std::string_view name;  // "bytes" or "dots"

  bool by_bytes() const { return name == "bytes"; }
};

inline Bound bound_of(const Work& work, const Peaks& peaks) {
  const double gops = work.in == DotType::int8 ? peaks.int8_gops : peaks.f32_gops;
  const double by_bytes = peaks.read_gbps > 0 ? work.bytes / peaks.read_gbps * 1e-3 : 0;
  const double by_ops = gops > 0 ? work.ops / gops * 1e-3 : 0;
  return by_ops > by_bytes ? Bound{by_ops, "dots"} : Bound{by_bytes, "bytes"};
}

inline double percent_of(const Bound& bound, double us) {
  return us > 0 ? 100 * bound.us / us : 0;
}

}  // namespace conclave::bench
