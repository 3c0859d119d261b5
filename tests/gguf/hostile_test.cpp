// Files that must be refused, each with one line that says what is wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <limits>

#include "raw_gguf.h"

namespace conclave::gguf {
namespace {

using namespace raw;  // NOLINT: the byte builder

struct Bad {
  std::string what;
  std::string bytes;
  std::string says;
};

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();

std::string with_key(const std::string& bytes) {
  return build({.keys = {bytes}});
}
std::string with_tensor(const std::string& bytes, std::size_t data_bytes = 4096) {
  return build({.tensors = {bytes}, .data_bytes = data_bytes});
}
std::string with_alignment(const std::string& bytes) {
  return build({.keys = {bytes}, .tensors = {tensor("t", {8}, 0, 0)}, .data_bytes = 32});
}
std::string cut(std::string bytes, std::size_t length) {
  return bytes.substr(0, length);
}

std::vector<Bad> bad_preambles() {
  std::string swapped = build({});
  std::swap(swapped[4], swapped[7]);
  return {
      {"empty file", "", "empty"},
      {"one byte", "G", "magic"},
      {"magic only", "GGUF", "version"},
      {"html", "<!DOCTYPE html><html><head></head></html>", "not a GGUF file"},
      {"old ggml magic", build({.magic = "lmgg"}), "not a GGUF file"},
      {"lower case magic", build({.magic = "gguf"}), "not a GGUF file"},
      {"magic with a newline", build({.magic = "G\nUF"}), "\\x0a"},
      {"reversed magic", build({.magic = "FUGG"}), "byte order"},
      {"big endian", swapped, "byte order"},
      {"version 0", build({.version = 0}), "version 0"},
      {"version 1", build({.version = 1}), "version 1"},
      {"version 4", build({.version = 4}), "version 4"},
      {"version -1", build({.version = 0xFFFFFFFF}), "version 4294967295"},
      {"no counts", cut(build({}), 8), "number of tensors"},
      {"half a count", cut(build({}), 20), "number of keys"},
      {"-1 tensors", build({.n_tensors = kHuge}), "tensors"},
      {"2^40 tensors", build({.n_tensors = 1ULL << 40}), "tensors"},
      {"2^63 tensors", build({.n_tensors = 1ULL << 63}), "tensors"},
      {"2^17 + 1 tensors", build({.n_tensors = (1ULL << 17) + 1}), "at most 131072"},
      {"2^17 tensors in a small file", build({.n_tensors = 1ULL << 17}), "truncated or corrupt"},
      {"-1 keys", build({.n_keys = kHuge}), "keys"},
      {"2^40 keys", build({.n_keys = 1ULL << 40}), "keys"},
      {"65537 keys", build({.n_keys = 65'537}), "at most 65536"},
      {"65536 keys in a small file", build({.n_keys = 65'536}), "truncated or corrupt"},
      {"one key too many", build({.n_keys = 2, .keys = {key_u32("k", 1)}, .alignment = 64}), "key 2 of 2"},
      {"one tensor too many", build({.n_tensors = 2, .tensors = {tensor("t", {8}, 0, 0)}, .data_bytes = 32}),
       "tensor 2 of 2"},
  };
}

std::vector<Bad> bad_keys() {
  const std::string filler(64, 'x');
  return {
      {"empty key", with_key(key_u32("", 1)), "empty"},
      {"key length -1", with_key(u64(kHuge) + filler), "past the end"},
      {"key length 2^40", with_key(u64(1ULL << 40) + filler), "past the end"},
      {"key one byte past the end", build({.keys = {u64(100) + std::string(99, 'k')}, .alignment = 0}), "past the end"},
      {"key of 65536 bytes", with_key(key_u32(std::string(65'536, 'k'), 1)), "at most 65535"},
      {"key with a newline", with_key(key_u32("a\nb", 1)), "'a\\x0ab'"},
      {"key with a zero byte", with_key(key_u32(std::string_view("a\0b", 3), 1)), "\\x00"},
      {"key with an escape", with_key(key_u32("\x1b[31m", 1)), "\\x1b"},
      {"key of broken UTF-8", with_key(key_u32("a\xff", 1)), "UTF-8"},
      {"key of overlong UTF-8", with_key(key_u32("\xc0\xaf", 1)), "UTF-8"},
      {"key with a surrogate", with_key(key_u32("\xed\xa0\x80", 1)), "UTF-8"},
      {"key with a line separator", with_key(key_u32("a\xe2\x80\xa8", 1)), "UTF-8"},
      {"key ends in half a character", with_key(key_u32("a\xe2\x80", 1)), "UTF-8"},
      {"long key is shortened", with_key(key(std::string(300, 'k'), 77, filler)), "kkk...'"},
      {"duplicate key", build({.keys = {key_u32("twice", 1), key_u32("other", 1), key_u32("twice", 1)}}),
       "duplicate key 'twice'"},
      {"duplicate key of another type", build({.keys = {key_u32("twice", 1), key_str("twice", "x")}}), "duplicate"},
      {"value type 13", with_key(key("k", 13, filler)), "key 'k': value type 13"},
      {"value type -1", with_key(key("k", 0xFFFFFFFF, filler)), "value type 4294967295"},
      {"bool of 2", with_key(key("flag", 7, u8(2))), "key 'flag': a bool"},
      {"bool of 255", with_key(key("flag", 7, u8(255))), "255"},
      {"array of bools with a 3", with_key(key("flags", 9, array(7, 3, u8(1) + u8(0) + u8(3)))), "stored as 3"},
      {"string length -1", with_key(key("s", 8, u64(kHuge) + filler)), "key 's'"},
      {"string length 2^32", with_key(key("s", 8, u64(1ULL << 32) + filler)), "past the end"},
      {"string one byte past the end", build({.keys = {key("s", 8, u64(4) + "abc")}, .alignment = 0}), "past the end"},
      {"array of arrays", with_key(key("a", 9, array(9, 1, array(4, 1, u32(1))))), "arrays of arrays"},
      {"empty array of arrays", with_key(key("a", 9, array(9, 0, ""))), "arrays of arrays"},
      {"array of type 13", with_key(key("a", 9, array(13, 1, filler))), "value type 13"},
      {"array length -1", with_key(key("a", 9, array(4, kHuge, filler))), "key 'a': an array of 18446744073709551615"},
      {"array length 2^62 of u32", with_key(key("a", 9, array(4, 1ULL << 62, filler))), "past the end"},
      {"array length 2^61 of u64", with_key(key("a", 9, array(10, 1ULL << 61, filler))), "past the end"},
      {"array length 2^40 of u8", with_key(key("a", 9, array(0, 1ULL << 40, filler))), "past the end"},
      {"array of -1 strings", with_key(key("a", 9, array(8, kHuge, filler))), "past the end"},
      {"array of 2^61 strings", with_key(key("a", 9, array(8, 1ULL << 61, filler))), "past the end"},
      {"string array with a long string", with_key(key("a", 9, array(8, 2, str("ok") + u64(1ULL << 50)))), "key 'a'"},
      {"string array with a string of -1", with_key(key("a", 9, array(8, 2, str("ok") + u64(kHuge)))), "key 'a'"},
      {"scalar past the end", build({.keys = {key("k", 10, "1234567")}, .alignment = 0}), "key 'k': its value"},
      {"key without a type", build({.keys = {str("ab") + "\1\2\3"}, .alignment = 0}), "key 'ab': its type"},
  };
}

std::vector<Bad> bad_alignments() {
  std::vector<Bad> all;
  for (const std::uint32_t bad : {0U, 3U, 7U, 24U, 33U, 48U, 100U, 1U << 21, 1U << 31, 0xFFFFFFFFU}) {
    all.push_back({fmt::format("alignment {}", bad), with_alignment(key_u32("general.alignment", bad)),
                   fmt::format("key 'general.alignment': the alignment is {}", bad)});
  }
  all.push_back({"alignment as u64", with_alignment(key("general.alignment", 10, u64(32))), "must be u32"});
  all.push_back({"alignment as i32", with_alignment(key_i32("general.alignment", 32)), "must be u32"});
  all.push_back({"alignment as text", with_alignment(key_str("general.alignment", "32")), "must be u32"});
  all.push_back(
      {"alignment as array", with_alignment(key("general.alignment", 9, array(4, 1, u32(32)))), "must be u32"});
  all.push_back({"alignment 1 and a float at an odd place",
                 build({.keys = {key_u32("general.alignment", 1)},
                        .tensors = {tensor("t", {1}, 0, 1), tensor("u", {1}, 0, 6), tensor("v", {1}, 0, 12),
                                    tensor("w", {1}, 0, 19)},
                        .data_bytes = 64}),
                 "multiple of 4"});
  return all;
}

std::vector<Bad> bad_tensors() {
  std::vector<Bad> all = {
      {"empty name", with_tensor(tensor("", {8}, 0, 0)), "tensor 1 of 1: its name is empty"},
      {"name length -1", with_tensor(u64(kHuge) + std::string(64, 'x')), "past the end"},
      {"name length 2^40", with_tensor(u64(1ULL << 40) + std::string(64, 'x')), "past the end"},
      {"name of 64 bytes", with_tensor(tensor(std::string(64, 'n'), {8}, 0, 0)), "at most 63"},
      {"name of 1000 bytes", with_tensor(tensor(std::string(1000, 'n'), {8}, 0, 0)), "1000 bytes"},
      {"name with a newline", with_tensor(tensor("a\nb", {8}, 0, 0)), "'a\\x0ab'"},
      {"name with a zero byte", with_tensor(tensor(std::string_view("a\0b", 3), {8}, 0, 0)), "UTF-8"},
      {"name of broken UTF-8", with_tensor(tensor("\x80", {8}, 0, 0)), "'\\x80'"},
      {"duplicate name", build({.tensors = {tensor("t", {8}, 0, 0), tensor("t", {8}, 0, 32)}, .data_bytes = 64}),
       "tensor 't': duplicate"},
      {"no dimensions", with_tensor(tensor("t", {}, 0, 0)), "0 dimensions"},
      {"5 dimensions", with_tensor(tensor("t", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions"},
      {"2^32 - 1 dimensions", with_tensor(str("t") + u32(0xFFFFFFFF) + std::string(64, '\1')), "4294967295 dimensions"},
      {"dimension 0", with_tensor(tensor("t", {0}, 0, 0)), "dimension 0 is 0"},
      {"second dimension 0", with_tensor(tensor("t", {8, 0}, 0, 0)), "dimension 1 is 0"},
      {"dimension -1", with_tensor(tensor("t", {kHuge}, 0, 0)), "dimension 0 is -1"},
      {"dimension 2^63", with_tensor(tensor("t", {8, 1ULL << 63}, 0, 0)), "dimension 1 is -9223372036854775808"},
      {"product 2^64", with_tensor(tensor("t", {1ULL << 32, 1ULL << 32}, 0, 0)), "overflows"},
      {"product 2^63", with_tensor(tensor("t", {1ULL << 62, 2}, 24, 0)), "overflows"},
      {"product of four 2^16 wraps to 0",
       with_tensor(tensor("t", {1ULL << 16, 1ULL << 16, 1ULL << 16, 1ULL << 16}, 0, 0)), "overflows"},
      {"bytes overflow", with_tensor(tensor("t", {1ULL << 62}, 0, 0)), "number of bytes overflows"},
      {"bytes overflow in blocks", with_tensor(tensor("t", {(1ULL << 63) - 256}, 15, 0)), "number of bytes overflows"},
      {"2^40 floats", with_tensor(tensor("t", {1ULL << 40}, 0, 0)), "past the end"},
      {"half a block of Q8_0", with_tensor(tensor("t", {16, 2}, 8, 0)), "not whole blocks of 32"},
      {"33 of Q4_0", with_tensor(tensor("t", {33}, 2, 0)), "not whole blocks"},
      {"128 of Q4_K", with_tensor(tensor("t", {128, 2}, 12, 0)), "not whole blocks of 256"},
      {"32 of NVFP4", with_tensor(tensor("t", {32}, 40, 0)), "not whole blocks of 64"},
      {"offset 1", with_tensor(tensor("t", {8}, 0, 1)), "offset 1 is not a multiple"},
      {"offset 16 at alignment 32", with_tensor(tensor("t", {8}, 0, 16)), "multiple of the alignment 32"},
      {"offset at the end", with_tensor(tensor("t", {8}, 0, 64), 64), "past the end"},
      {"offset past the end", with_tensor(tensor("t", {8}, 0, 1 << 20), 64), "past the end"},
      {"offset -32", with_tensor(tensor("t", {8}, 0, kHuge - 31)), "past the end"},
      {"offset 2^63", with_tensor(tensor("t", {8}, 0, 1ULL << 63)), "past the end"},
      {"offset + size wraps", with_tensor(tensor("t", {1ULL << 50}, 0, kHuge - 4095)), "past the end"},
      {"last byte missing", with_tensor(tensor("t", {8}, 0, 0), 31), "past the end"},
      {"no data at all", with_tensor(tensor("t", {8}, 0, 0), 0), "truncated"},
      {"no padding", build({.tensors = {tensor("t", {8}, 0, 0)}, .alignment = 0}), "truncated"},
      {"two at one offset", build({.tensors = {tensor("a", {8}, 0, 0), tensor("b", {8}, 0, 0)}, .data_bytes = 64}),
       "tensor 'b': its bytes overlap those of tensor 'a'"},
      {"overlap by one byte", build({.tensors = {tensor("a", {33}, 24, 0), tensor("b", {8}, 0, 32)}, .data_bytes = 64}),
       "overlap"},
      {"overlap against the order",
       build({.tensors = {tensor("a", {8}, 0, 32), tensor("b", {16}, 0, 0)}, .data_bytes = 64}), "overlap"},
      {"one inside another", build({.tensors = {tensor("a", {64}, 0, 0), tensor("b", {8}, 0, 64)}, .data_bytes = 256}),
       "overlap"},
      {"tensor without a type",
       build({.tensors = {str("tensor") + u32(1) + u64(8) + std::string(2, '\0')}, .alignment = 0}),
       "tensor 'tensor': its type"},
  };
  for (const std::uint32_t type : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 43U, 99U, 1U << 31, 0xFFFFFFFFU}) {
    all.push_back({fmt::format("tensor type {}", type), with_tensor(tensor("t", {256}, type, 0)),
                   fmt::format("tensor 't': tensor type {}", type)});
  }
  return all;
}

std::vector<Bad> bad_split_keys() {
  const auto file = [](std::vector<std::string> keys) { return build({.keys = std::move(keys)}); };
  return {
      {"split.no alone", file({key_u16("split.no", 0)}), "split.no"},
      {"split.count is text", file({key_str("split.count", "2")}), "split.count"},
      {"split.count is negative", file({key_i32("split.count", -1)}), "split.count"},
      {"split.count is 65535", file({key_u16("split.no", 0), key_u16("split.count", 65535)}), "at most 1024"},
      {"split.no is missing", file({key_u16("split.count", 2)}), "split.no"},
      {"split.no past the count", file({key_u16("split.no", 2), key_u16("split.count", 2)}), "split.no"},
      {"a part without a part's name", file({key_u16("split.no", 0), key_u16("split.count", 2)}),
       "-00001-of-00002.gguf"},
  };
}

long peak_rss_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

// Sanitizers take time and memory of their own.
constexpr double kSlower = kSanitized ? 20 : 1;
constexpr long kLarger = kSanitized ? 100 : 1;

class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Every file of a table, with its time and the memory that the whole table took.
void expect_refused(const std::vector<Bad>& table) {
  const TempDir dir;
  const long before = peak_rss_kib();
  for (const Bad& bad : table) {
    SCOPED_TRACE(bad.what);
    const auto path = dir.put("bad.gguf", bad.bytes);
    const Timer timer;
    const std::string text = refusal(path);
    EXPECT_LT(timer.seconds(), 1.0 * kSlower);
    EXPECT_NE(text.find(bad.says), std::string::npos) << "'" << text << "' does not say '" << bad.says << "'";
  }
  EXPECT_LT(peak_rss_kib() - before, 16 * 1024 * kLarger);
}

TEST(Hostile, Preamble) {
  expect_refused(bad_preambles());
}
TEST(Hostile, Keys) {
  expect_refused(bad_keys());
}
TEST(Hostile, Alignment) {
  expect_refused(bad_alignments());
}
TEST(Hostile, Tensors) {
  expect_refused(bad_tensors());
}
TEST(Hostile, SplitKeys) {
  expect_refused(bad_split_keys());
}

TEST(Hostile, EveryTruncation) {
  const TempDir dir;
  const std::string whole = small_valid_file();
  EXPECT_NO_THROW(walk(File::open(dir.put("whole.gguf", whole))));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    refusal(dir.put("cut.gguf", whole.substr(0, length)));
  }
}

TEST(Hostile, EveryByteChanged) {
  const TempDir dir;
  const std::string whole = small_valid_file();
  const auto try_it = [&](const std::string& bytes) {
    const auto path = dir.put("changed.gguf", bytes);
    try {
      walk(File::open(path));
    } catch (const Error& error) {
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    }
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    for (const int change : {0x00, 0xFF, whole[i] ^ 0x80, whole[i] ^ 0x01, whole[i] + 1}) {
      bytes[i] = static_cast<char>(change);
      try_it(bytes);
    }
  }
}

TEST(Hostile, ManyKeys) {
  const TempDir dir;
  Spec spec;
  for (int i = 0; i < 65'536; ++i) spec.keys.push_back(key_u32(fmt::format("key.{}", i), 1));
  {
    const auto path = dir.put("many.gguf", build(spec));
    const Timer timer;
    const File file = File::open(path);
    EXPECT_LT(timer.seconds(), 1.0 * kSlower);
    EXPECT_EQ(file.keys().size(), 65'536U);
    ASSERT_NE(file.find("key.65535"), nullptr);
    EXPECT_EQ(file.find("key.65536"), nullptr);
  }
  for (int i = 65'536; i < 1'000'000; ++i) spec.keys.push_back(key_u32(fmt::format("key.{}", i), 1));
  const auto path = dir.put("too_many.gguf", build(spec));
  const long before = peak_rss_kib();
  const Timer timer;
  EXPECT_NE(refusal(path).find("1000000 keys"), std::string::npos);
  EXPECT_LT(timer.seconds(), 0.2 * kSlower);
  EXPECT_LT(peak_rss_kib() - before, 4 * 1024 * kLarger);
}

TEST(Hostile, ManyTensorsAndStrings) {
  const TempDir dir;
  Spec spec;
  spec.data_bytes = 3'200'000;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    spec.tensors.push_back(tensor(fmt::format("t.{}", i), {1}, 0, (99'999 - i) * 32));
  }
  std::string texts;
  for (int i = 0; i < 1'000'000; ++i) texts += str(std::to_string(i));
  spec.keys.push_back(key("texts", 9, array(8, 1'000'000, texts)));
  const auto path = dir.put("many.gguf", build(spec));
  const Timer timer;
  const File file = File::open(path);
  EXPECT_LT(timer.seconds(), 1.0 * kSlower);
  EXPECT_EQ(file.tensors().size(), 100'000U);
  EXPECT_EQ(file.find("texts")->string_at(999'999), "999999");
  EXPECT_EQ(file.find("texts")->string_at(1'000'000), std::nullopt);
  ASSERT_NE(file.find_tensor("t.54321"), nullptr);
  EXPECT_EQ(file.find_tensor("t.54321"), &file.tensors()[54'321]);
}

// Long common beginnings are the worst that names can do to a sort.
TEST(Hostile, LongAlikeKeys) {
  const TempDir dir;
  Spec spec;
  const std::string beginning(60'000, 'k');
  for (int i = 0; i < 1000; ++i) spec.keys.push_back(key_u32(beginning + std::to_string(i), 1));
  const auto path = dir.put("alike.gguf", build(spec));
  const Timer timer;
  EXPECT_EQ(File::open(path).keys().size(), 1000U);
  EXPECT_LT(timer.seconds(), 1.0 * kSlower);
}

// Files whose length is a hole: the sizes are believable, the memory must not be spent.
TEST(Hostile, SparseClaims) {
  const TempDir dir;
  const std::vector<Bad> table = {
      {"string of 8 GiB", with_key(key("s", 8, u64(8ULL << 30))), "key 's'"},
      {"array of 8 GiB", with_key(key("a", 9, array(0, 8ULL << 30, ""))), "key 'a'"},
      {"2^30 strings", with_key(key("a", 9, array(8, 1ULL << 30, ""))), "key 'a'"},
      {"65536 keys of nothing", build({.n_keys = 65'536}), "key 1 of 65536: the key is empty"},
      {"2^17 tensors of nothing", build({.n_tensors = 1 << 17}), "tensor 1 of 131072"},
  };
  const long before = peak_rss_kib();
  for (const Bad& bad : table) {
    SCOPED_TRACE(bad.what);
    const auto path = dir.put("sparse.gguf", bad.bytes);
    std::filesystem::resize_file(path, 17ULL << 30);
    const Timer timer;
    const std::string text = refusal(path);
    EXPECT_LT(timer.seconds(), 1.0 * kSlower);
    EXPECT_NE(text.find(bad.says), std::string::npos) << text;
  }
  EXPECT_LT(peak_rss_kib() - before, 64 * 1024 * kLarger);
}

TEST(Reader, OpensASparseFileOf17GiBAtOnce) {
  const TempDir dir;
  constexpr std::uint64_t kBytes = 17ULL << 30;
  const auto path =
      dir.put("large.gguf",
              build({.tensors = {tensor("small", {8}, 0, 0), tensor("large", {4096, kBytes / 4096 - 1}, 24, 32)}}));
  std::filesystem::resize_file(path, kBytes + 256);
  const long before = peak_rss_kib();
  const Timer timer;
  const File file = File::open(path);
  EXPECT_LT(timer.seconds(), 0.1 * kSlower);
  EXPECT_LT(peak_rss_kib() - before, 4 * 1024 * kLarger);
  EXPECT_EQ(file.file_bytes(), kBytes + 256);
  EXPECT_EQ(file.data(file.tensors()[1]).back(), std::byte{0});
}

}  // namespace
}  // namespace conclave::gguf
