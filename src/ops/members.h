// How a descriptor tells what it reads and writes.
//
// Every op has one static function `members(op, visitor)` that names each tensor with its role and each parameter with
// its value. Validation, barriers, byte counts, profile events, the tests' guard bands and the export of cases all come
// from that one list. A tensor that was not given is visited too; visitors skip it with defined().
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tensor/tensor.h"

namespace conclave {

enum class Role {
  in,        // read
  weight,    // read, constant over the life of a program: may be prefetched before any dependency
  out,       // written; where an op leaves elements alone its header says which
  inout,     // read and written
  scratch,   // unspecified before and after
  host_in,   // in host memory whatever the device, read
  host_out,  // in host memory whatever the device, written
};

constexpr bool writes(Role role) {
  return role == Role::out || role == Role::inout || role == Role::scratch || role == Role::host_out;
}
constexpr bool is_host(Role role) {
  return role == Role::host_in || role == Role::host_out;
}

// A visitor that passes every tensor that was given to visit(role, name, tensor), and skips the parameters.
template <class Visit>
struct TensorVisitor {
  std::remove_reference_t<Visit>& visit;

  template <class AnyTensor>
  void tensor(Role role, std::string_view name, AnyTensor& t) {
    if (t.defined()) visit(role, name, t);
  }
  template <class Value>
  void param(std::string_view, const Value&) {}
};

template <class Op, class Visit>
void for_each_tensor(Op& op, Visit&& visit) {
  std::remove_const_t<Op>::members(op, TensorVisitor<Visit>{visit});
}

}  // namespace conclave
