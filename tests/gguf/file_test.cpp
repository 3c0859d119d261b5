#include "gguf/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmath>
#include <limits>

#include "base/mapped_file.h"
#include "gguf/header_parser.h"
#include "raw_gguf.h"

namespace conclave::gguf {
namespace {

using namespace raw;  // NOLINT: the byte builder

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Reader, SmallFile) {
  const TempDir dir;
  const std::string bytes = small_valid_file();
  const File file = File::open(dir.put("small.gguf", bytes));
  EXPECT_EQ(file.version(), 3U);
  EXPECT_EQ(file.alignment(), 32U);
  EXPECT_EQ(file.parts(), 1U);
  EXPECT_EQ(file.file_bytes(), bytes.size());
  ASSERT_EQ(file.keys().size(), 7U);
  EXPECT_EQ(file.keys()[0].key, "general.architecture");
  EXPECT_EQ(file.find("general.architecture")->as_string(), "test");
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_EQ(file.find("a.u8")->as_u64(), 200U);
  EXPECT_EQ(file.find("a.bool")->as_bool(), true);
  EXPECT_EQ(file.find("a.f32")->as_float(), 1.5);
  const Value& texts = *file.find("a.texts");
  EXPECT_EQ(texts.type(), ValueType::array);
  EXPECT_EQ(texts.element_type(), ValueType::string);
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_EQ(texts.string_at(0), "one");
  EXPECT_EQ(texts.string_at(1), "");
  EXPECT_EQ(texts.string_at(2), "three");
  EXPECT_EQ(texts.as_string(), std::nullopt);
  EXPECT_EQ(file.find("a.bools")->bool_at(1), true);

  ASSERT_EQ(file.tensors().size(), 3U);
  const TensorInfo& f = file.tensors()[0];
  EXPECT_EQ(f.name, "f");
  EXPECT_EQ(f.dims, (std::vector<std::int64_t>{2, 3}));  // outermost first
  EXPECT_EQ(f.type->dtype, DType::f32);
  EXPECT_EQ(f.bytes, 24U);
  const TensorInfo* const q = file.find_tensor("q");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ(q->bytes, 68U);
  EXPECT_EQ(q->offset, f.offset + 32);
  EXPECT_EQ(file.find_tensor("z"), nullptr);
  EXPECT_EQ(file.data(*q).size(), 68U);
  EXPECT_EQ(file.data(*q)[0], static_cast<std::byte>(bytes[q->offset]));
}

TEST(Reader, IntegersOfEveryTypeAndTheirLimits) {
  const TempDir dir;
  const File file = File::open(dir.put(
      "numbers.gguf",
      build({.keys = {key("u8", 0, u8(255)), key("i8", 1, num<std::int8_t>(-1)),
                      key("u16", 2, num<std::uint16_t>(65535)), key("i16", 3, num<std::int16_t>(-32768)),
                      key("u32", 4, u32(0xFFFFFFFF)), key("i32", 5, num(-5)), key("f32", 6, num(-0.25F)),
                      key("u64", 10, u64(1ULL << 63)), key("i64", 11, num(std::numeric_limits<std::int64_t>::min())),
                      key("f64", 12, num(std::numeric_limits<double>::quiet_NaN())), key("text", 8, str("7")),
                      key("i64s", 9, array(11, 2, num<std::int64_t>(-1) + num<std::int64_t>(9)))}})));
  EXPECT_EQ(file.find("u8")->as_u64(), 255U);
  EXPECT_EQ(file.find("i8")->as_i64(), -1);
  EXPECT_EQ(file.find("i8")->as_u64(), std::nullopt);
  EXPECT_EQ(file.find("u16")->as_i64(), 65535);
  EXPECT_EQ(file.find("i16")->as_i64(), -32768);
  EXPECT_EQ(file.find("u32")->as_i64(), 0xFFFFFFFFLL);
  EXPECT_EQ(file.find("i32")->as_i64(), -5);
  EXPECT_EQ(file.find("u64")->as_u64(), 1ULL << 63);
  EXPECT_EQ(file.find("u64")->as_i64(), std::nullopt);
  EXPECT_EQ(file.find("i64")->as_i64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(file.find("f32")->as_float(), -0.25);
  EXPECT_EQ(file.find("f32")->as_u64(), std::nullopt);
  EXPECT_TRUE(std::isnan(*file.find("f64")->as_float()));
  EXPECT_EQ(file.find("text")->as_u64(), std::nullopt);
  EXPECT_EQ(file.find("text")->as_bool(), std::nullopt);
  EXPECT_EQ(file.find("i64s")->i64_at(0), -1);
  EXPECT_EQ(file.find("i64s")->u64_at(0), std::nullopt);
  EXPECT_EQ(file.find("i64s")->u64_at(1), 9U);
  EXPECT_EQ(file.find("i64s")->u64_at(2), std::nullopt);
  EXPECT_EQ(file.find("i64s")->as_i64(), std::nullopt);
}

TEST(Reader, LegalThoughUnusual) {
  const TempDir dir;
  // A vocabulary without tensors may end where the header ends.
  EXPECT_EQ(File::open(dir.put("a.gguf", build({.keys = {key_u32("k", 1)}, .alignment = 0}))).keys().size(), 1U);
  EXPECT_EQ(File::open(dir.put("b.gguf", build({.alignment = 0}))).keys().size(), 0U);
  EXPECT_EQ(File::open(dir.put("c.gguf", build({.version = 2}))).version(), 2U);
  // Empty arrays, empty texts, texts of any bytes, keys in UTF-8.
  const File odd = File::open(dir.put(
      "d.gguf", build({.keys = {key("none", 9, array(8, 0, "")), key("zero", 9, array(12, 0, "")), key_str("blank", ""),
                                key_str("bytes", "\xff\n"), key_u32("schl\xc3\xbcssel", 4)},
                       .alignment = 0})));
  EXPECT_EQ(odd.find("none")->size(), 0U);
  EXPECT_EQ(odd.find("none")->string_at(0), std::nullopt);
  EXPECT_EQ(odd.find("zero")->float_at(0), std::nullopt);
  EXPECT_EQ(odd.find("blank")->as_string(), "");
  EXPECT_EQ(odd.find("bytes")->as_string(), "\xff\n");
  // Tensors in any order, with gaps, a name of 63 bytes, and bytes after the last.
  const File gaps = File::open(dir.put(
      "e.gguf",
      build({.tensors = {tensor("a", {8}, 0, 128), tensor(std::string(63, 'n'), {8}, 0, 0)}, .data_bytes = 999})));
  EXPECT_EQ(walk(gaps), walk(gaps));
  // Types that are only listed.
  const File listed = File::open(
      dir.put("f.gguf", build({.tensors = {tensor("i", {4}, 27, 0), tensor("x", {256}, 16, 32)}, .data_bytes = 128})));
  EXPECT_EQ(listed.tensors()[0].type->name, "I64");
  EXPECT_FALSE(listed.tensors()[1].type->dtype);
}

TEST(Reader, Alignments) {
  const TempDir dir;
  for (std::uint32_t alignment = 1; alignment <= 1U << 20; alignment *= 2) {
    SCOPED_TRACE(alignment);
    // Below 8 the header is made so long that the first float lies well.
    std::string pad_key;
    for (std::size_t extra = 1; extra < 9; ++extra) {
      pad_key = std::string(extra, 'p');
      const std::string header = build({.keys = {key_u32("general.alignment", alignment), key("p" + pad_key, 0, u8(1))},
                                        .tensors = {tensor("a", {8}, 0, 0), tensor("b", {8}, 0, 0)},
                                        .alignment = 0});
      if (header.size() % 8 == 0) break;
    }
    const std::uint64_t second = std::max<std::uint64_t>(32, alignment);
    const auto path =
        dir.put("aligned.gguf", build({.keys = {key_u32("general.alignment", alignment), key("p" + pad_key, 0, u8(1))},
                                       .tensors = {tensor("a", {8}, 0, 0), tensor("b", {8}, 0, second)},
                                       .alignment = alignment,
                                       .data_bytes = second + 32}));
    const File file = File::open(path);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(file.tensors()[0].offset % alignment, 0U);
    EXPECT_EQ(file.data(file.tensors()[0])[0], std::byte{1});
  }
}

TEST(Reader, NotAFile) {
  const TempDir dir;
  EXPECT_TRUE(says(refusal(dir / "absent.gguf"), "No such file"));
  std::filesystem::create_directory(dir / "folder.gguf");
  EXPECT_TRUE(says(refusal(dir / "folder.gguf"), "a directory"));
  ASSERT_EQ(::mkfifo((dir / "fifo.gguf").c_str(), 0600), 0);
  EXPECT_TRUE(says(refusal(dir / "fifo.gguf"), "a FIFO"));  // and does not wait for a writer
  std::filesystem::create_symlink("/dev/zero", dir / "device.gguf");
  EXPECT_TRUE(says(refusal(dir / "device.gguf"), "a device"));
  std::filesystem::create_symlink("loop.gguf", dir / "loop.gguf");
  EXPECT_TRUE(says(refusal(dir / "loop.gguf"), "cannot open"));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (dir / "socket.gguf").native().copy(static_cast<char*>(address.sun_path), sizeof address.sun_path - 1);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    EXPECT_TRUE(says(refusal(dir / "socket.gguf"), "a socket"));
  }
  ::close(fd);
  EXPECT_TRUE(says(refusal(dir / "line\nbreak.gguf"), "line\\x0abreak"));
  EXPECT_THROW(File::open(""), Error);
}

TEST(Reader, FileThatShrinksAfterOpening) {
  const TempDir dir;
  const auto path = dir.put("shrinks.gguf", small_valid_file());
  const File file = File::open(path);
  EXPECT_NO_THROW(file.data(file.tensors()[0]));
  std::filesystem::resize_file(path, 100);
  try {
    file.data(file.tensors()[0]);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_TRUE(says(error.what(), "become shorter")) << error.what();
  }
  // The header lies in our own memory.
  EXPECT_EQ(file.find("a.texts")->string_at(2), "three");
}

// Between fstat and the reads, at every length: a short read is an error, and nothing is touched that is not there.
TEST(Reader, FileThatShrinksWhileItIsRead) {
  const TempDir dir;
  const std::string whole = small_valid_file();
  for (std::size_t length = 0; length < 300; length += 7) {
    const auto path = dir.put("shrinks.gguf", whole);
    const MappedFile file = MappedFile::open(path);
    std::filesystem::resize_file(path, length);
    try {
      HeaderParser(file).parse();
      FAIL() << "no error at " << length;
    } catch (const Error& error) {
      EXPECT_TRUE(says(error.what(), "became shorter")) << error.what();
    }
  }
}

TEST(Reader, MovesKeepViews) {
  const TempDir dir;
  File first = File::open(dir.put("a.gguf", small_valid_file()));
  const std::string_view name = first.tensors()[0].name;
  const std::uint64_t sum = walk(first);
  File second = std::move(first);
  EXPECT_EQ(second.tensors()[0].name.data(), name.data());
  EXPECT_EQ(walk(second), sum);
  second = File::open(dir.put("b.gguf", small_valid_file()));
  EXPECT_EQ(walk(second), sum);
}

// A set of two parts; each piece can be replaced.
struct Set {
  std::vector<std::string> first_keys = {key_str("general.architecture", "test"), key_u16("split.no", 0),
                                         key_u16("split.count", 2), key_i32("split.tensors.count", 3)};
  std::vector<std::string> second_keys = {key_u16("split.no", 1), key_u16("split.count", 2),
                                          key_i32("split.tensors.count", 3)};
  std::vector<std::string> second_tensors = {tensor("b", {8}, 0, 0), tensor("c", {8}, 0, 32)};

  std::filesystem::path put(const TempDir& dir) const {
    dir.put("m-00002-of-00002.gguf", build({.keys = second_keys, .tensors = second_tensors, .data_bytes = 64}));
    return dir.put("m-00001-of-00002.gguf",
                   build({.keys = first_keys, .tensors = {tensor("a", {8}, 0, 0)}, .data_bytes = 32}));
  }
};

TEST(Split, EitherPartOpensTheSet) {
  const TempDir dir;
  const auto first = Set{}.put(dir);
  for (const auto& path : {first, dir / "m-00002-of-00002.gguf"}) {
    const File file = File::open(path);
    EXPECT_EQ(file.parts(), 2U);
    EXPECT_EQ(file.file_bytes(),
              std::filesystem::file_size(first) + std::filesystem::file_size(dir / "m-00002-of-00002.gguf"));
    EXPECT_EQ(file.find("general.architecture")->as_string(), "test");
    ASSERT_EQ(file.tensors().size(), 3U);
    EXPECT_EQ(file.tensors()[0].name, "a");
    EXPECT_EQ(file.tensors()[2].part, 1U);
    EXPECT_EQ(file.data(*file.find_tensor("c"))[0], std::byte{(32 * 7 + 1) & 0xFF});
    walk(file);
  }
  // In the working directory, without a folder in the path.
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  EXPECT_EQ(File::open("m-00002-of-00002.gguf").parts(), 2U);
  std::filesystem::current_path(before);
}

TEST(Split, WhatDoesNotBelongTogether) {
  const auto refused = [](const Set& set, const std::string& part) {
    const TempDir dir;
    const auto path = set.put(dir);
    const std::string text = refusal(path);
    EXPECT_TRUE(says(text, part)) << text << " does not say " << part;
    const std::string other = refusal(dir / "m-00002-of-00002.gguf");
    EXPECT_TRUE(says(other, part)) << other << " does not say " << part;
  };
  {
    Set set;
    set.first_keys[3] = key_i32("split.tensors.count", 4);
    refused(set, "split.tensors.count");
    set.second_keys[2] = key_i32("split.tensors.count", 4);
    refused(set, "have 3 tensors together");
    set.first_keys.pop_back();
    refused(set, "'split.tensors.count' is missing");
  }
  {
    Set set;
    set.second_tensors[1] = tensor("a", {8}, 0, 32);
    refused(set, "tensor 'a': duplicate name, also in part 1");
  }
  {
    Set set;
    set.first_keys[1] = key_u16("split.no", 1);
    refused(set, "split.no");
  }
  {
    Set set;
    set.second_tensors[1] = tensor("c", {16}, 0, 32);
    refused(set, "m-00002-of-00002.gguf: tensor 'c'");
  }
  {
    Set set;
    set.first_keys[2] = key_u16("split.count", 3);
    refused(set, "split.count");
  }
  const TempDir dir;
  Set set;
  set.second_keys = {};
  EXPECT_TRUE(says(refusal(set.put(dir)), "m-00002-of-00002.gguf: key 'split.count'"));
  set = {};
  set.second_keys[0] = key_u16("split.no", 0);
  EXPECT_TRUE(says(refusal(set.put(dir)), "m-00002-of-00002.gguf: key 'split.no'"));
}

TEST(Split, MissingParts) {
  const TempDir dir;
  const auto first = Set{}.put(dir);
  std::filesystem::remove(dir / "m-00002-of-00002.gguf");
  EXPECT_TRUE(says(refusal(first), "m-00002-of-00002.gguf: part 2 of 2 is missing"));
  Set{}.put(dir);
  std::filesystem::remove(first);
  EXPECT_TRUE(says(refusal(dir / "m-00002-of-00002.gguf"), "m-00001-of-00002.gguf: part 1 of 2 is missing"));
}

TEST(Split, TheKeysDecideAndNotTheName) {
  const TempDir dir;
  const auto plain = build({.keys = {key_u32("k", 1)}, .tensors = {tensor("t", {8}, 0, 0)}, .data_bytes = 32});
  EXPECT_EQ(File::open(dir.put("m-00001-of-00003.gguf", plain)).parts(), 1U);
  for (const std::uint16_t count : {0, 1}) {
    const auto joined =
        build({.keys = {key_u16("split.no", 0), key_u16("split.count", count), key_i32("split.tensors.count", 0)}});
    EXPECT_EQ(File::open(dir.put("joined.gguf", joined)).parts(), 1U);
    EXPECT_EQ(File::open(dir.put("m-00001-of-00001.gguf", joined)).parts(), 1U);
  }
  const auto part =
      build({.keys = {key_u16("split.no", 0), key_u16("split.count", 2), key_i32("split.tensors.count", 0)}});
  for (const std::string name : {"m-0001-of-0002.gguf", "m-00001-of-00002.GGUF.gguf", "m-00003-of-00002.gguf",
                                 "m_00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-00001-of-000a2.gguf"}) {
    EXPECT_TRUE(says(refusal(dir.put(name, part)), "cannot be found")) << name;
  }
}

TEST(Types, Table) {
  EXPECT_EQ(tensor_type(4U), nullptr);
  EXPECT_EQ(tensor_type(43U), nullptr);
  for (const DType type : all_dtypes()) {
    if (type == DType::u32) continue;
    const TensorType& known = tensor_type(type);
    EXPECT_EQ(known.dtype, type);
    EXPECT_EQ(known.per_block, dtype_info(type).per_block) << known.name;
    EXPECT_EQ(known.bytes, dtype_info(type).bytes) << known.name;
    EXPECT_EQ(tensor_type(known.code), &known);
    EXPECT_EQ(dtype_from_name(known.name), type);
  }
  EXPECT_EQ(value_type_name(ValueType::boolean), "bool");
  EXPECT_EQ(value_type_bytes(ValueType::i64), 8U);
}

}  // namespace
}  // namespace conclave::gguf
