// What validate() functions are written with: each check throws an Error that names the op, the member and the values.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "ops/members.h"

namespace conclave {

inline constexpr DType kF32[] = {DType::f32};
inline constexpr DType kI32[] = {DType::i32};
inline constexpr DType kU32[] = {DType::u32};
inline constexpr DType kFloat[] = {DType::f32, DType::f16, DType::bf16};
inline constexpr DType kWeight[] = {DType::f32,  DType::f16,    DType::bf16,   DType::q4_0, DType::q4_1, DType::q5_0,
                                    DType::q5_1, DType::q8_0,   DType::q2_k,   DType::q3_k, DType::q4_k, DType::q5_k,
                                    DType::q6_k, DType::iq4_nl, DType::iq4_xs, DType::mxfp4};
inline constexpr DType kKvCache[] = {DType::f32, DType::f16, DType::bf16, DType::q8_0};
inline constexpr std::int64_t kAny = -1;              // in a shape: any length
inline constexpr std::int64_t kMaxExperts = 1 << 20;  // far above any model; lists per expert stay small

class Check {
 public:
  // Checks every member's view first: inside its buffer, dense rows, no output on top of another member.
  template <class Op>
  explicit Check(const Op& op) : op_(Op::kName) {
    std::vector<Member> members;
    for_each_tensor(op, [&](Role role, std::string_view name, const Tensor& t) {
      members.push_back({role, name, &t});
    });
    views(members, Op::kInPlace);
  }

  // A member that must be there: one of `types`, of shape `dims` (kAny matches any length).
  void tensor(std::string_view name, const Tensor& t, std::span<const DType> types,
              std::initializer_list<std::int64_t> dims) const;
  // The same where it is given.
  void optional(std::string_view name, const Tensor& t, std::span<const DType> types,
                std::initializer_list<std::int64_t> dims) const {
    if (t.defined()) tensor(name, t, types, dims);
  }
  // At least one dimension; the shape is checked afterwards.
  void given(std::string_view name, const Tensor& t) const;
  void rank(std::string_view name, const Tensor& t, int low, int high) const;
  void between(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) const;
  void positive(std::string_view name, double value) const;  // finite and above 0
  void finite(std::string_view name, double value) const;
  // Indices are i32: as many as n_tokens * top_k must fit.
  void pairs(std::int64_t n_tokens, std::int64_t top_k) const;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::invalid_argument, "{}: {}", op_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  struct Member {
    Role role;
    std::string_view name;
    const Tensor* tensor;
  };
  void views(std::span<const Member> members, bool in_place) const;

  std::string_view op_;
};

}  // namespace conclave
