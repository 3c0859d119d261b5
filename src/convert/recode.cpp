#include "convert/recode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fail.h"
#include "base/file_text.h"
#include "quant/codec.h"
#include "quant/half.h"

namespace conclave {
namespace {

constexpr std::int64_t kItemElements = 16 * 1024;  // whole blocks of every format; what one thread takes at a time
// Between two calls of the sink: enough for every thread, and soon enough done that a user who interrupts is heard.
constexpr std::int64_t kItemsPerThread = 16;
constexpr std::int64_t kMaxBatchItems = 256;
constexpr std::size_t kCopyBytes = 4 << 20;

std::size_t bytes_of(DType type, std::int64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  return static_cast<std::size_t>(elements / info.per_block * info.bytes);
}

constexpr std::size_t kAllGood = std::numeric_limits<std::size_t>::max();

// The first value that `to` cannot hold, or kAllGood. Floats keep their NaNs and infinities; a finite number never
// becomes one.
std::size_t first_bad(std::span<const float> values, DType to) {
  constexpr float kPastF16 = 65520.0F;  // rounds to infinity
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool finite = std::isfinite(values[i]);
    if (is_block(to) && !finite) return i;
    if (to == DType::f16 && finite && std::fabs(values[i]) >= kPastF16) return i;
  }
  return kAllGood;
}

// A part of one piece, and where its encoded bytes go in the batch.
struct Item {
  std::size_t piece;
  std::int64_t first;
  std::int64_t elements;
  std::size_t offset;
  std::size_t bad = kAllGood;
  float bad_value = 0.0F;
};

}  // namespace

void Recoder::run(const RecodeJob& job, const std::function<void(std::span<const std::byte>)>& sink) {
  const bool copied =
      std::all_of(job.pieces.begin(), job.pieces.end(), [&](const SourcePiece& p) { return p.type == job.to; });
  if (copied) {
    for (const SourcePiece& piece : job.pieces) {
      for (std::size_t done = 0; done < piece.bytes.size();) {
        const std::size_t count = std::min(piece.bytes.size() - done, kCopyBytes);
        sink(piece.bytes.subspan(done, count));
        done += count;
      }
    }
    return;
  }

  // Before any thread works: nothing may be thrown there.
  std::vector<std::vector<float>> scratch(static_cast<std::size_t>(pool_->size()),
                                          std::vector<float>(static_cast<std::size_t>(kItemElements)));
  const std::int64_t batch = kItemElements * std::min(kItemsPerThread * pool_->size(), kMaxBatchItems);
  std::vector<Item> items;
  std::int64_t batched = 0;
  const auto flush = [&] {
    encoded_.resize(bytes_of(job.to, batched));
    pool_->run([&](int rank) {
      Region(*pool_, rank).for_each(static_cast<std::int64_t>(items.size()), [&](std::int64_t i) {
        Item& item = items[static_cast<std::size_t>(i)];
        const SourcePiece& piece = job.pieces[item.piece];
        const auto values =
            std::span(scratch[static_cast<std::size_t>(rank)]).first(static_cast<std::size_t>(item.elements));
        decode(piece.type, piece.bytes.subspan(bytes_of(piece.type, item.first), bytes_of(piece.type, item.elements)),
               values);
        item.bad = first_bad(values, job.to);
        if (item.bad != kAllGood) {
          item.bad_value = values[item.bad];
          return;
        }
        encode(job.to, values, std::span(encoded_).subspan(item.offset, bytes_of(job.to, item.elements)));
      });
    });
    for (const Item& item : items) {
      if (item.bad == kAllGood) continue;
      const auto element =
          static_cast<std::int64_t>(item.piece) * job.piece_elements + item.first + static_cast<std::int64_t>(item.bad);
      fail(ErrorCode::bad_file, "tensor {}: element {} is {}, which {} cannot hold", printable(job.name), element,
           item.bad_value, dtype_info(job.to).name);
    }
    sink(encoded_);
    items.clear();
    batched = 0;
  };
  for (std::size_t piece = 0; piece < job.pieces.size(); ++piece) {
    for (std::int64_t first = 0; first < job.piece_elements; first += kItemElements) {
      const std::int64_t count = std::min(kItemElements, job.piece_elements - first);
      if (batched + count > batch) flush();
      items.push_back({.piece = piece, .first = first, .elements = count, .offset = bytes_of(job.to, batched)});
      batched += count;
    }
  }
  if (!items.empty()) flush();
}

}  // namespace conclave
