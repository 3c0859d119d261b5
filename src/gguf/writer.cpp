#include "gguf/writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_output.h"
#include "base/file_text.h"
#include "gguf/header_text.h"
#include "gguf/limits.h"
#include "gguf/split_set.h"
#include "gguf/tensor_layout.h"

namespace conclave::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "values are written as they lie in memory");

struct Declared {
  std::string name;
  const TensorType* type;
  std::vector<std::int64_t> dims;
  std::uint64_t bytes;
  std::uint64_t padded_bytes;
};

// Tensors [begin, end) go into one file.
struct PartRange {
  std::size_t begin;
  std::size_t end;
};

}  // namespace

struct Writer::Impl {
  enum class State { declaring, writing, finished, failed };

  Impl(std::filesystem::path target, WriterOptions writer_options);

  std::filesystem::path path;
  std::string shown;
  WriterOptions options;
  State state = State::declaring;

  std::vector<std::pair<std::string, Metadata>> keys;
  std::set<std::string, std::less<>> key_names;
  std::vector<Declared> tensors;
  std::set<std::string, std::less<>> tensor_names;
  std::uint64_t tensor_bytes_total = 0;  // padded

  std::vector<PartRange> ranges;
  std::vector<FileOutput> outputs;  // one per part begun; all but the last are closed
  std::size_t tensor = 0;           // being written
  std::uint64_t tensor_done = 0;    // bytes of it that are out

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::invalid_argument, "{}: {}", shown, fmt::format(format, std::forward<Args>(args)...));
  }
  void require(State wanted, std::string_view action) const;

  // Runs `step`; where that throws, what was written is removed at once and the writer is of no more use.
  template <class Step>
  void attempt(State after, const Step& step) {
    try {
      step();
      state = after;
    } catch (...) {
      state = State::failed;
      outputs.clear();
      throw;
    }
  }

  void cut_into_parts();
  std::filesystem::path path_of_part(std::size_t part) const;
  HeaderText header_of_part(std::size_t part) const;
  void begin_part();
  void begin();         // ends the declarations
  void enter_tensor();  // opens the part that the current tensor starts
  void leave_tensor();  // pads it
  void write(std::span<const std::byte> bytes);
  void finish(const std::function<void(const std::filesystem::path&)>& check);
};

Writer::Impl::Impl(std::filesystem::path target, WriterOptions writer_options)
    : path(std::move(target)),
      shown(printable(path.native(), std::numeric_limits<std::size_t>::max())),
      options(writer_options) {
  // Below 8 a legal file could still put a tensor where its elements cannot be read.
  if (options.version < kOldestVersion || options.version > kNewestVersion) {
    refuse("version {} cannot be written; {} and {} can", options.version, kOldestVersion, kNewestVersion);
  }
  if (!is_legal_alignment(options.alignment) || options.alignment < 8) {
    refuse("the alignment is {}; it must be a power of two from 8 to {}", options.alignment, kMaxAlignment);
  }
  if (!path.has_filename()) refuse("not the name of a file");
}

void Writer::Impl::require(State wanted, std::string_view action) const {
  if (state == wanted) return;
  constexpr std::array<std::string_view, 4> kWhen = {"before any tensor was begun", "after tensor data was begun",
                                                     "after the file was finished", "after an error"};
  refuse("{} {}", action, kWhen[static_cast<std::size_t>(state)]);
}

// First fit in order: a part is closed when the next tensor would take it over the limit.
void Writer::Impl::cut_into_parts() {
  ranges = {{0, 0}};
  std::uint64_t in_part = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensors[i].padded_bytes;
    const bool full = options.max_part_bytes != 0 && ranges.back().end > ranges.back().begin &&
                      (in_part > options.max_part_bytes || bytes > options.max_part_bytes - in_part);
    if (full) {
      ranges.push_back({i, i});
      in_part = 0;
    }
    ranges.back().end = i + 1;
    in_part += bytes;
  }
  if (ranges.size() > kMaxParts) {
    refuse("parts of {} bytes would be {} files; at most {} are allowed", options.max_part_bytes, ranges.size(),
           kMaxParts);
  }
}

std::filesystem::path Writer::Impl::path_of_part(std::size_t part) const {
  if (options.max_part_bytes == 0) return path;
  const bool has_ending = path.extension() == ".gguf";
  return part_path(path.parent_path(), {.stem = has_ending ? path.stem().native() : path.filename().native(),
                                        .index = static_cast<std::uint32_t>(part + 1),
                                        .count = static_cast<std::uint32_t>(ranges.size())});
}

HeaderText Writer::Impl::header_of_part(std::size_t part) const {
  const PartRange range = ranges[part];
  const bool split = options.max_part_bytes != 0;
  const bool aligned = options.alignment != kDefaultAlignment;
  const bool first = part == 0;

  HeaderText text;
  text.raw(kMagic);
  text.number(options.version);
  text.number<std::uint64_t>(range.end - range.begin);
  text.number<std::uint64_t>((first ? keys.size() : 0) + (aligned ? 1 : 0) + (split ? 3 : 0));
  if (first) {
    for (const auto& [key, value] : keys) {
      std::visit([&, &name = key](const auto& content) { text.key_value(name, content); }, value);
    }
  }
  if (aligned) text.key_value(std::string(kAlignmentKey), static_cast<std::uint32_t>(options.alignment));
  if (split) {
    text.key_value(std::string(kSplitNumberKey), static_cast<std::uint16_t>(part));
    text.key_value(std::string(kSplitCountKey), static_cast<std::uint16_t>(ranges.size()));
    text.key_value(std::string(kSplitTensorsKey), static_cast<std::int32_t>(tensors.size()));
  }
  std::uint64_t offset = 0;
  for (std::size_t i = range.begin; i < range.end; ++i) {
    const Declared& declared = tensors[i];
    text.value(declared.name);
    text.number(static_cast<std::uint32_t>(declared.dims.size()));
    for (auto dim = declared.dims.rbegin(); dim != declared.dims.rend(); ++dim) {
      text.number(static_cast<std::uint64_t>(*dim));
    }
    text.number(declared.type->code);
    text.number(offset);
    offset += declared.padded_bytes;
  }
  text.pad_to(options.alignment);
  return text;
}

void Writer::Impl::begin_part() {
  if (!outputs.empty()) outputs.back().close();
  const HeaderText text = header_of_part(outputs.size());
  if (text.size() > kMaxHeaderBytes)
    refuse("the header takes {} bytes; at most {} are read", text.size(), kMaxHeaderBytes);
  outputs.emplace_back(path_of_part(outputs.size()));
  outputs.back().write(text.bytes());
}

void Writer::Impl::begin() {
  cut_into_parts();
  begin_part();
}

void Writer::Impl::enter_tensor() {
  if (tensor == ranges[outputs.size() - 1].end) begin_part();
}

void Writer::Impl::leave_tensor() {
  const std::vector<std::byte> zeros(tensors[tensor].padded_bytes - tensors[tensor].bytes);
  outputs.back().write(zeros);
  ++tensor;
  tensor_done = 0;
}

void Writer::Impl::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (tensor == tensors.size()) refuse("{} bytes more than the declared tensors have", bytes.size());
    if (tensor_done == 0) enter_tensor();
    const std::uint64_t count = std::min<std::uint64_t>(bytes.size(), tensors[tensor].bytes - tensor_done);
    outputs.back().write(bytes.first(count));
    tensor_done += count;
    bytes = bytes.subspan(count);
    if (tensor_done == tensors[tensor].bytes) leave_tensor();
  }
}

void Writer::Impl::finish(const std::function<void(const std::filesystem::path&)>& check) {
  if (tensor < tensors.size()) {
    refuse("tensor '{}' has {} of its {} bytes", printable(tensors[tensor].name), tensor_done, tensors[tensor].bytes);
  }
  // Everything that is likely to fail comes before the first rename.
  for (FileOutput& output : outputs) output.close();
  if (check) check(outputs.front().temporary_path());
  std::size_t committed = 0;
  try {
    for (FileOutput& output : outputs) {
      output.commit();
      ++committed;
    }
  } catch (...) {
    for (std::size_t i = 0; i < committed; ++i) outputs[i].remove_committed();
    throw;
  }
}

Writer::Writer(std::filesystem::path path, WriterOptions options)
    : impl_(std::make_unique<Impl>(std::move(path), options)) {}

Writer::~Writer() = default;

void Writer::add(std::string_view key, Metadata value) {
  impl_->require(Impl::State::declaring, "a key was added");
  const std::string shown_key = printable(key);
  if (key.empty()) impl_->refuse("a key is empty");
  if (key.size() > kMaxKeyBytes) {
    impl_->refuse("key '{}': {} bytes; at most {} are allowed", shown_key, key.size(), kMaxKeyBytes);
  }
  if (!is_printable_utf8(key)) impl_->refuse("key '{}': not printable UTF-8", shown_key);
  if (key == kAlignmentKey || key == kSplitNumberKey || key == kSplitCountKey || key == kSplitTensorsKey) {
    impl_->refuse("key '{}': the writer sets it from its options", shown_key);
  }
  constexpr std::size_t kOwnKeys = 4;
  if (impl_->keys.size() + kOwnKeys >= kMaxKeys) impl_->refuse("key '{}': more than {} keys", shown_key, kMaxKeys);
  if (!impl_->key_names.emplace(key).second) impl_->refuse("key '{}': it was added before", shown_key);
  impl_->keys.emplace_back(key, std::move(value));
}

void Writer::declare(std::string_view name, DType type, std::vector<std::int64_t> dims) {
  impl_->require(Impl::State::declaring, "a tensor was declared");
  const std::string shown_name = printable(name);
  if (name.empty()) impl_->refuse("a tensor has an empty name");
  if (name.size() > kMaxTensorNameBytes) {
    impl_->refuse("tensor '{}': a name of {} bytes; at most {} are allowed", shown_name, name.size(),
                  kMaxTensorNameBytes);
  }
  if (!is_printable_utf8(name)) impl_->refuse("tensor '{}': its name is not printable UTF-8", shown_name);
  if (type == DType::u32) impl_->refuse("tensor '{}': GGUF has no tensors of u32", shown_name);
  if (dims.empty() || dims.size() > kMaxDims) {
    impl_->refuse("tensor '{}': {} dimensions; 1 to {} are allowed", shown_name, dims.size(), kMaxDims);
  }
  if (impl_->tensors.size() >= kMaxTensors) impl_->refuse("tensor '{}': more than {} tensors", shown_name, kMaxTensors);

  const TensorType& file_type = tensor_type(type);
  const TensorBytes size = tensor_bytes(file_type, dims);
  if (!size.refusal.empty()) impl_->refuse("tensor '{}': {}", shown_name, size.refusal);
  const auto padded = checked_align_up(size.bytes, impl_->options.alignment);
  const auto total = padded ? checked_add(impl_->tensor_bytes_total, *padded) : std::nullopt;
  if (!total || *total > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    impl_->refuse("tensor '{}': the file would be larger than any file can be", shown_name);
  }
  if (!impl_->tensor_names.emplace(name).second) impl_->refuse("tensor '{}': it was declared before", shown_name);
  impl_->tensor_bytes_total = *total;
  impl_->tensors.push_back({std::string(name), &file_type, std::move(dims), size.bytes, *padded});
}

void Writer::write(std::span<const std::byte> bytes) {
  if (impl_->state != Impl::State::declaring) impl_->require(Impl::State::writing, "tensor data was written");
  const bool first = impl_->state == Impl::State::declaring;
  impl_->attempt(Impl::State::writing, [&] {
    if (first) impl_->begin();
    impl_->write(bytes);
  });
}

void Writer::finish() {
  finish({});
}

void Writer::finish(const std::function<void(const std::filesystem::path&)>& check) {
  write({});  // a file without tensors is begun here
  impl_->attempt(Impl::State::finished, [&] { impl_->finish(check); });
}

}  // namespace conclave::gguf
