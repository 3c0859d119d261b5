#include "gguf/file.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "base/mapped_file.h"
#include "gguf/header_parser.h"
#include "gguf/limits.h"
#include "gguf/split_set.h"

namespace conclave::gguf {
namespace {

struct Part {
  explicit Part(const std::filesystem::path& path) : file(MappedFile::open(path)), header(HeaderParser(file).parse()) {}
  Part(const Part&) = delete;  // the header's bytes know their file by its address
  Part& operator=(const Part&) = delete;

  MappedFile file;
  Header header;
};

using Parts = std::vector<std::unique_ptr<Part>>;

// Opens the set that `opened` (already read, with more than one part by its keys) belongs to.
Parts open_set(const std::filesystem::path& path, std::unique_ptr<Part> opened, const SplitKeys& keys) {
  const std::string& shown = opened->file.shown_path();
  const auto name = parse_part_name(path);
  if (!name) {
    fail(ErrorCode::bad_file,
         "{}: key '{}': this is one of {} parts, but its name does not end in -{:05}-of-{:05}.gguf, so the others "
         "cannot be "
         "found",
         shown, kSplitCountKey, keys.count, keys.number + 1, keys.count);
  }
  if (name->count != keys.count) {
    fail(ErrorCode::bad_file, "{}: key '{}': {} parts, but {} by the file's name", shown, kSplitCountKey, keys.count,
         name->count);
  }

  Parts parts;
  std::uint64_t n_tensors = 0;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < name->count; ++i) {
    std::unique_ptr<Part> part;
    if (i + 1 == name->index) {
      part = std::move(opened);
    } else {
      const auto sibling = part_path(path.parent_path(), {name->stem, i + 1, name->count});
      std::error_code ignored;
      if (!std::filesystem::exists(sibling, ignored)) {
        fail(ErrorCode::io, "{}: part {} of {} is missing", printable(sibling.native(), sibling.native().size()), i + 1,
             name->count);
      }
      part = std::make_unique<Part>(sibling);
    }
    const std::string& part_shown = part->file.shown_path();
    const SplitKeys part_keys = split_keys(part->header, part_shown);
    if (part_keys.count != name->count) {
      fail(ErrorCode::bad_file, "{}: key '{}': {} parts, but {} by the file's name", part_shown, kSplitCountKey,
           part_keys.count, name->count);
    }
    if (part_keys.number != i) {
      fail(ErrorCode::bad_file, "{}: key '{}': {}, but the file's name asks for {}", part_shown, kSplitNumberKey,
           part_keys.number, i);
    }
    if (i == 0) {
      if (!part_keys.n_tensors) fail(ErrorCode::bad_file, "{}: key '{}' is missing", part_shown, kSplitTensorsKey);
      total = *part_keys.n_tensors;
    } else if (part_keys.n_tensors.value_or(total) != total) {
      fail(ErrorCode::bad_file, "{}: key '{}': {}, but {} in the first part", part_shown, kSplitTensorsKey,
           *part_keys.n_tensors, total);
    }
    n_tensors += part->header.tensors.size();
    if (n_tensors > kMaxTensors) {
      fail(ErrorCode::bad_file, "{}: more than {} tensors up to this part", part_shown, kMaxTensors);
    }
    parts.push_back(std::move(part));
  }
  if (n_tensors != total) {
    fail(ErrorCode::bad_file, "{}: key '{}': {}, but the parts have {} tensors together", parts[0]->file.shown_path(),
         kSplitTensorsKey, total, n_tensors);
  }
  return parts;
}

}  // namespace

struct File::Impl {
  Parts parts;
  std::vector<TensorInfo> tensors;          // of all parts
  std::vector<std::uint32_t> tensor_order;  // places in tensors, sorted by name
  std::uint64_t file_bytes = 0;

  void collect_tensors();
  void sort_tensors();
};

void File::Impl::collect_tensors() {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    file_bytes += parts[i]->file.size();
    for (TensorInfo& tensor : parts[i]->header.tensors) {
      tensor.part = static_cast<std::uint32_t>(i);
      tensors.push_back(std::move(tensor));
    }
    parts[i]->header.tensors = {};
  }
}

void File::Impl::sort_tensors() {
  tensor_order.resize(tensors.size());
  std::iota(tensor_order.begin(), tensor_order.end(), 0U);
  std::sort(tensor_order.begin(), tensor_order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int order = tensors[a].name.compare(tensors[b].name);
    return order != 0 ? order < 0 : a < b;
  });
  for (std::size_t i = 1; i < tensor_order.size(); ++i) {
    const TensorInfo& first = tensors[tensor_order[i - 1]];
    const TensorInfo& second = tensors[tensor_order[i]];
    if (first.name == second.name) {
      fail(ErrorCode::bad_file, "{}: tensor '{}': duplicate name{}", parts[second.part]->file.shown_path(),
           printable(second.name), first.part == second.part ? "" : fmt::format(", also in part {}", first.part + 1));
    }
  }
}

File File::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  auto first = std::make_unique<Part>(path);
  const SplitKeys keys = split_keys(first->header, first->file.shown_path());
  if (keys.count > 1) {
    impl->parts = open_set(path, std::move(first), keys);
  } else {
    impl->parts.push_back(std::move(first));
  }
  impl->collect_tensors();
  impl->sort_tensors();
  // Mapped last: a file that is refused costs no address space.
  for (const TensorInfo& tensor : impl->tensors) impl->parts[tensor.part]->file.map();
  return File(std::move(impl));
}

File::File(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

std::uint32_t File::version() const {
  return impl_->parts[0]->header.version;
}

std::uint64_t File::alignment() const {
  return impl_->parts[0]->header.alignment;
}

std::uint64_t File::file_bytes() const {
  return impl_->file_bytes;
}

std::uint32_t File::parts() const {
  return static_cast<std::uint32_t>(impl_->parts.size());
}

std::span<const KeyValue> File::keys() const {
  return impl_->parts[0]->header.keys;
}

const Value* File::find(std::string_view key) const {
  const KeyValue* const found = find_key(impl_->parts[0]->header, key);
  return found == nullptr ? nullptr : &found->value;
}

std::span<const TensorInfo> File::tensors() const {
  return impl_->tensors;
}

const TensorInfo* File::find_tensor(std::string_view name) const {
  const auto found = std::lower_bound(
      impl_->tensor_order.begin(), impl_->tensor_order.end(), name,
      [&](std::uint32_t place, std::string_view wanted) { return impl_->tensors[place].name < wanted; });
  if (found == impl_->tensor_order.end() || impl_->tensors[*found].name != name) return nullptr;
  return &impl_->tensors[*found];
}

std::span<const std::byte> File::data(const TensorInfo& tensor) const {
  CONCLAVE_CHECK(tensor.part < impl_->parts.size(), "a tensor of another file");
  const MappedFile& file = impl_->parts[tensor.part]->file;
  CONCLAVE_CHECK(tensor.offset <= file.mapped().size() && tensor.bytes <= file.mapped().size() - tensor.offset,
                 "a tensor of another file");
  file.require_not_shrunk();
  return file.mapped().subspan(tensor.offset, tensor.bytes);
}

}  // namespace conclave::gguf
