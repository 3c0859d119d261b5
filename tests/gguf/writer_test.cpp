#include "gguf/writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <functional>

#include "gguf/file.h"
#include "raw_gguf.h"

namespace conclave::gguf {
namespace {

using raw::read_all;
using raw::TempDir;

std::vector<std::byte> pattern(std::uint64_t bytes, int seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<std::byte>(i * 31 + static_cast<std::size_t>(seed) * 17 + 5);
  return data;
}

TEST(Writer, EveryValueType) {
  const TempDir dir;
  Writer writer(dir / "values.gguf");
  writer.add("bool", true);
  writer.add("u8", std::uint8_t{200});
  writer.add("i8", std::int8_t{-100});
  writer.add("u16", std::uint16_t{60'000});
  writer.add("i16", std::int16_t{-30'000});
  writer.add("u32", std::uint32_t{4'000'000'000});
  writer.add("i32", std::int32_t{-2'000'000'000});
  writer.add("u64", std::uint64_t{1} << 63);
  writer.add("i64", std::int64_t{-1} << 62);
  writer.add("f32", 0.5F);
  writer.add("f64", 0.1);
  writer.add("text", std::string("a\0b\n", 4));
  writer.add("bools", std::vector<bool>{true, false, true});
  writer.add("u8s", std::vector<std::uint8_t>{1, 2});
  writer.add("i8s", std::vector<std::int8_t>{-1, 2});
  writer.add("u16s", std::vector<std::uint16_t>{1, 65535});
  writer.add("i16s", std::vector<std::int16_t>{-1, 2});
  writer.add("u32s", std::vector<std::uint32_t>{1, 2, 3});
  writer.add("i32s", std::vector<std::int32_t>{-1, 2});
  writer.add("u64s", std::vector<std::uint64_t>{1, 1ULL << 63});
  writer.add("i64s", std::vector<std::int64_t>{-1, 2});
  writer.add("f32s", std::vector<float>{1.0F, -2.5F});
  writer.add("f64s", std::vector<double>{1e300, -0.1});
  writer.add("texts", std::vector<std::string>{"", "one", "two"});
  writer.add("none", std::vector<std::string>{});
  writer.finish();

  const File file = File::open(dir / "values.gguf");
  ASSERT_EQ(file.keys().size(), 25U);
  EXPECT_EQ(file.find("bool")->as_bool(), true);
  EXPECT_EQ(file.find("u8")->as_u64(), 200U);
  EXPECT_EQ(file.find("i8")->as_i64(), -100);
  EXPECT_EQ(file.find("u16")->as_u64(), 60'000U);
  EXPECT_EQ(file.find("i16")->as_i64(), -30'000);
  EXPECT_EQ(file.find("u32")->as_u64(), 4'000'000'000U);
  EXPECT_EQ(file.find("i32")->as_i64(), -2'000'000'000);
  EXPECT_EQ(file.find("u64")->as_u64(), 1ULL << 63);
  EXPECT_EQ(file.find("i64")->as_i64(), std::int64_t{-1} << 62);
  EXPECT_EQ(file.find("f32")->as_float(), 0.5);
  EXPECT_EQ(file.find("f64")->as_float(), 0.1);
  EXPECT_EQ(file.find("text")->as_string(), std::string_view("a\0b\n", 4));
  EXPECT_EQ(file.find("bools")->bool_at(1), false);
  EXPECT_EQ(file.find("bools")->bool_at(2), true);
  EXPECT_EQ(file.find("u8s")->u64_at(1), 2U);
  EXPECT_EQ(file.find("i8s")->i64_at(0), -1);
  EXPECT_EQ(file.find("u16s")->u64_at(1), 65535U);
  EXPECT_EQ(file.find("i16s")->i64_at(0), -1);
  EXPECT_EQ(file.find("u32s")->u64_at(2), 3U);
  EXPECT_EQ(file.find("i32s")->i64_at(0), -1);
  EXPECT_EQ(file.find("u64s")->u64_at(1), 1ULL << 63);
  EXPECT_EQ(file.find("i64s")->i64_at(0), -1);
  EXPECT_EQ(file.find("f32s")->float_at(1), -2.5);
  EXPECT_EQ(file.find("f64s")->float_at(0), 1e300);
  EXPECT_EQ(file.find("texts")->string_at(2), "two");
  EXPECT_EQ(file.find("none")->size(), 0U);
  for (const KeyValue& entry : file.keys()) {  // the keys are the types' names, with an s for an array
    const std::string element(value_type_name(entry.value.element_type()));
    if (entry.key.starts_with("text") || entry.key == "none") continue;
    EXPECT_EQ(entry.key, entry.value.type() == ValueType::array ? element + "s" : element);
  }
}

// Every type at every alignment, written in pieces that respect nothing.
TEST(Writer, EveryTensorTypeAndAlignment) {
  const TempDir dir;
  for (const std::uint64_t alignment : {8ULL, 16ULL, 32ULL, 64ULL, 128ULL, 4096ULL, 1ULL << 20}) {
    SCOPED_TRACE(alignment);
    const auto path = dir / "types.gguf";
    Writer writer(path, {.alignment = alignment});
    std::vector<std::byte> all;
    for (const DType type : all_dtypes()) {
      if (type == DType::u32) continue;
      const auto [name, per_block, bytes, align] = dtype_info(type);
      writer.declare(name, type, {3, 1, per_block * 3});
      const auto data = pattern(static_cast<std::uint64_t>(bytes) * 9, static_cast<int>(type));
      all.insert(all.end(), data.begin(), data.end());
    }
    std::span<const std::byte> rest = all;
    for (std::size_t piece = 1; !rest.empty(); piece = piece * 2 + 1) {
      const std::size_t count = std::min(piece % 1000, rest.size());
      writer.write(rest.first(count));
      rest = rest.subspan(count);
    }
    writer.finish();

    const File file = File::open(path);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(file.find("general.alignment") == nullptr, alignment == 32);
    EXPECT_EQ(file.file_bytes() % alignment, 0U);
    for (const TensorInfo& tensor : file.tensors()) {
      EXPECT_EQ(tensor.offset % alignment, 0U);
      EXPECT_EQ(tensor.dims, (std::vector<std::int64_t>{3, 1, tensor.type->per_block * 3}));
      EXPECT_EQ(dtype_info(*tensor.type->dtype).name, tensor.name);
      const auto data = file.data(tensor);
      const auto wanted = pattern(tensor.bytes, static_cast<int>(*tensor.type->dtype));
      EXPECT_TRUE(std::equal(data.begin(), data.end(), wanted.begin(), wanted.end())) << tensor.name;
    }
    EXPECT_EQ(dir.entries(), 1U);
  }
}

// The bytes of a file are part of the contract.
TEST(Writer, ByteForByte) {
  const TempDir dir;
  Writer writer(dir / "tiny.gguf");
  writer.add("a", std::uint32_t{7});
  writer.declare("t", DType::f16, {2, 1});
  writer.write(std::as_bytes(std::span("\x01\x02\x03\x04", 4)));
  writer.finish();
  using namespace raw;  // NOLINT: the byte builder
  std::string wanted = "GGUF" + u32(3) + u64(1) + u64(1) + u64(1) + "a" + u32(4) + u32(7) + u64(1) + "t" + u32(2) +
                       u64(1) + u64(2) + u32(1) + u64(0);
  wanted.resize(96, '\0');
  wanted += std::string("\x01\x02\x03\x04", 4);
  wanted.resize(128, '\0');
  EXPECT_EQ(read_all(dir / "tiny.gguf"), wanted);
}

TEST(Writer, Version2) {
  const TempDir dir;
  const auto path = dir / "m.gguf";
  Writer writer(path, {.version = 2});
  writer.add("k", std::uint32_t{7});
  writer.finish();
  EXPECT_EQ(File::open(path).version(), 2U);
  EXPECT_EQ(File::open(path).find("k")->as_u64(), 7U);
  EXPECT_THROW(Writer(path, {.version = 1}), Error);
  EXPECT_THROW(Writer(path, {.version = 4}), Error);
}

TEST(Writer, SplitSet) {
  const TempDir dir;
  for (const bool ending : {true, false}) {
    Writer writer(dir / (ending ? "model.gguf" : "model"), {.alignment = 64, .max_part_bytes = 256});
    writer.add("general.architecture", std::string("test"));
    const std::vector<std::int64_t> sizes = {16, 48, 16, 100, 1, 1, 1, 1};  // floats
    for (std::size_t i = 0; i < sizes.size(); ++i) writer.declare(fmt::format("t{}", i), DType::f32, {sizes[i]});
    for (std::size_t i = 0; i < sizes.size(); ++i)
      writer.write(pattern(static_cast<std::uint64_t>(sizes[i]) * 4, static_cast<int>(i)));
    EXPECT_EQ(dir.entries(), ending ? 4U : 8U);  // the new ones are temporary
    writer.finish();
  }
  EXPECT_EQ(dir.entries(), 4U);  // both names gave the same files

  const File file = File::open(dir / "model-00003-of-00004.gguf");
  EXPECT_EQ(file.parts(), 4U);
  EXPECT_EQ(file.alignment(), 64U);
  std::vector<std::uint32_t> parts;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorInfo& tensor = file.tensors()[i];
    parts.push_back(tensor.part);
    const auto data = file.data(tensor);
    const auto wanted = pattern(tensor.bytes, static_cast<int>(i));
    EXPECT_TRUE(std::equal(data.begin(), data.end(), wanted.begin(), wanted.end())) << tensor.name;
  }
  EXPECT_EQ(parts, (std::vector<std::uint32_t>{0, 0, 1, 2, 3, 3, 3, 3}));
}

TEST(Writer, SplitSetOfOne) {
  const TempDir dir;
  Writer writer(dir / "m.gguf", {.max_part_bytes = 1 << 20});
  writer.declare("t", DType::f32, {1});
  writer.write(pattern(4, 0));
  writer.finish();
  EXPECT_EQ(File::open(dir / "m-00001-of-00001.gguf").tensors().size(), 1U);
}

// What the writer is given must be right; what it says must be one line; what it began must be gone.
TEST(Writer, Misuse) {
  struct Case {
    std::string says;
    std::function<void(Writer&)> use;
  };
  const std::vector<std::int64_t> two = {2};
  const std::vector<Case> cases = {
      {"empty", [](Writer& w) { w.add("", 1.0F); }},
      {"at most 65535", [](Writer& w) { w.add(std::string(65'536, 'k'), 1.0F); }},
      {"printable", [](Writer& w) { w.add("a\nb", 1.0F); }},
      {"added before", [](Writer& w) { w.add("a", 1.0F), w.add("a", true); }},
      {"options", [](Writer& w) { w.add("general.alignment", std::uint32_t{32}); }},
      {"options", [](Writer& w) { w.add("split.count", std::uint16_t{1}); }},
      {"empty name", [&](Writer& w) { w.declare("", DType::f32, two); }},
      {"at most 63", [&](Writer& w) { w.declare(std::string(64, 'n'), DType::f32, two); }},
      {"printable", [&](Writer& w) { w.declare("\xff", DType::f32, two); }},
      {"declared before", [&](Writer& w) { w.declare("t", DType::f32, two), w.declare("t", DType::f16, two); }},
      {"no tensors of u32", [&](Writer& w) { w.declare("t", DType::u32, two); }},
      {"0 dimensions", [](Writer& w) { w.declare("t", DType::f32, {}); }},
      {"5 dimensions",
       [](Writer& w) {
         w.declare("t", DType::f32, {1, 1, 1, 1, 1});
       }},
      {"at least 1", [](Writer& w) { w.declare("t", DType::f32, {0}); }},
      {"at least 1",
       [](Writer& w) {
         w.declare("t", DType::f32, {4, -1});
       }},
      {"overflows",
       [](Writer& w) {
         w.declare("t", DType::f32, {1LL << 40, 1LL << 40});
       }},
      {"larger than any file",
       [](Writer& w) {
         for (const auto* n : {"a", "b", "c"}) w.declare(n, DType::f16, {1LL << 61});
       }},
      {"whole blocks",
       [](Writer& w) {
         w.declare("t", DType::q4_k, {2, 128});
       }},
      {"0 of its 8 bytes", [&](Writer& w) { w.declare("t", DType::f32, two), w.finish(); }},
      {"7 of its 8 bytes", [&](Writer& w) { w.declare("t", DType::f32, two), w.write(pattern(7, 0)), w.finish(); }},
      {"more than the declared", [&](Writer& w) { w.declare("t", DType::f32, two), w.write(pattern(9, 0)); }},
      {"more than the declared", [](Writer& w) { w.write(pattern(1, 0)); }},
      {"after tensor data was begun",
       [&](Writer& w) { w.declare("t", DType::f32, two), w.write({}), w.add("k", 1.0F); }},
      {"after tensor data was begun", [&](Writer& w) { w.write({}), w.declare("t", DType::f32, two); }},
      {"after an error",
       [](Writer& w) {
         EXPECT_THROW(w.write(pattern(1, 0)), Error);
         w.finish();
       }},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    Writer writer(dir / "misuse.gguf");
    try {
      c.use(writer);
      ADD_FAILURE() << "accepted: " << c.says;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(c.says), std::string::npos) << text << " does not say " << c.says;
      EXPECT_EQ(text.find('\n'), std::string::npos);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
  EXPECT_EQ(dir.entries(), 0U);
  for (const std::uint64_t alignment : {0ULL, 1ULL, 4ULL, 33ULL, 1ULL << 21}) {
    EXPECT_THROW(Writer(dir / "x.gguf", {.alignment = alignment}), Error) << alignment;
  }
  Writer twice(dir / "twice.gguf");
  twice.finish();
  EXPECT_THROW(twice.finish(), Error);
  EXPECT_NO_THROW(File::open(dir / "twice.gguf"));
}

TEST(Writer, LeavesNothingWithoutFinish) {
  const TempDir dir;
  dir.put("model.gguf", "what was here before");
  {
    Writer writer(dir / "model.gguf");
    writer.declare("t", DType::f32, {1024});
    writer.write(pattern(100, 0));
    EXPECT_EQ(dir.entries(), 2U);
  }
  EXPECT_EQ(dir.entries(), 1U);
  EXPECT_EQ(read_all(dir / "model.gguf"), "what was here before");
}

TEST(Writer, WorldSaysNo) {
  const TempDir dir;
  {
    Writer writer(dir / "absent/model.gguf");
    EXPECT_THROW(writer.finish(), Error);
  }
  // A second part that cannot take its name takes the first one back.
  Writer writer(dir / "m.gguf", {.max_part_bytes = 4});
  writer.declare("a", DType::f32, {1});
  writer.declare("b", DType::f32, {1});
  writer.write(pattern(8, 0));
  std::filesystem::create_directory(dir / "m-00002-of-00002.gguf");
  dir.put("m-00002-of-00002.gguf/occupied", "");
  try {
    writer.finish();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(std::string_view(error.what()).find("m-00002-of-00002.gguf"), std::string_view::npos);
  }
  EXPECT_EQ(dir.entries(), 1U);
}

// A limit on file sizes stands in for a full disk.
TEST(Writer, FullDisk) {
  const TempDir dir;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  {
    Writer writer(dir / "full.gguf");
    writer.declare("t", DType::f32, {1 << 20});
    try {
      writer.write(pattern(4 << 20, 0));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_NE(std::string_view(error.what()).find("full.gguf: cannot write"), std::string_view::npos) << error.what();
    }
    EXPECT_EQ(dir.entries(), 0U);  // at once, not only when the writer goes
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
}

}  // namespace
}  // namespace conclave::gguf
