#include "backends/cpu/expert_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/cpu.h"
#include "ops/host_access.h"
#include "ops/rows.h"

namespace conclave {
namespace {

std::vector<DType> types_of(const ProductSpec& spec) {
  std::vector<DType> types{spec.w.dtype};
  if (spec.up.defined()) types.push_back(spec.up.dtype);
  return types;
}

constexpr std::int64_t kPackRows = 16;
constexpr std::int64_t kFewRows = 16;
constexpr std::int64_t kChunkTiles = kChunk / kTileColumns;
static_assert(kChunkTiles <= kMaxStripTiles);

// The slot's name: what decides which of several slots writes an output row.
std::int64_t slot_key(std::int64_t list, std::int64_t i) {
  return (list << 32) | i;
}

bool in_packed_strips(const ProductSpec& spec, const CpuKernels& kernels) {
  const StripKernels* strips = kernels.product.strips;
  if (strips == nullptr || strips->pack == nullptr) return false;
  const auto has_strip = [&](const Tensor& w) { return strips->strip[static_cast<std::size_t>(w.dtype)] != nullptr; };
  return has_strip(spec.w) && (!spec.up.defined() || has_strip(spec.up));
}

std::int64_t result_floats(const CpuKernels& kernels) {
  const std::int64_t tiles = kernels.product.strips == nullptr ? 1 : kernels.product.strips->tiles;
  return tiles * TileRows::kMaxRows * kTileColumns;
}

// Whether results go to `out` as they are, 16 of a row at a time.
bool stores_tiles(const ProductSpec& spec) {
  const Tensor& out = spec.out;
  return !spec.bias.defined() && out.dtype == DType::f32 && out.stride(out.rank - 1) == sizeof(float);
}

// A product's results that are read once everything is computed, by all threads. (Those of gate and up are read at once.)
bool outgrows_caches(const ProductSpec& spec) {
  static const std::int64_t last_level = cache_sizes().l3;
  const Tensor& out = spec.out;
  return !spec.up.defined() && stores_tiles(spec) &&
         element_count(out) > last_level / 2 / static_cast<std::int64_t>(sizeof(float));
}

}  // namespace

Tensor as_stack(const Tensor& w) {
  Tensor stack = w;
  stack.rank = 3;
  stack.dims = {1, w.dim(0), w.dim(1)};
  stack.strides = {w.dim(0) * w.stride(0), w.stride(0), w.stride(1)};
  return stack;
}

ExpertProduct::ExpertProduct(const ProductSpec& spec, std::unique_ptr<RowLists> lists, const CpuKernels& kernels)
    : spec_(spec),
      stores_tiles_(stores_tiles(spec)),
      past_caches_(outgrows_caches(spec)),
      lists_(std::move(lists)),
      kernels_(kernels),
      bank_(spec.x, types_of(spec)),
      tile_rows_(spec.w.dim(2), kernels),
      bank_at_(shared_.add(bank_.n_rows(), bank_.row_stride())),
      plan_at_(shared_.add<Plan>(1)),
      blocks_at_(shared_.add<std::int64_t>(lists_->max_lists() + 1)),
      owner_at_(shared_.add<std::int64_t>(lists_->may_repeat_outputs() ? lists_->n_outputs() : 0)),
      max_packs_(in_packed_strips(spec, kernels) ? lists_->n_outputs() / kPackRows + lists_->max_lists() : 0),
      packs_before_at_(shared_.add<std::int64_t>(max_packs_ > 0 ? lists_->max_lists() + 1 : 0)),
      packs_at_(shared_.add(max_packs_, TileRows::packed_bytes(spec.w.dim(2), kernels))),
      tile_rows_at_(local_.add(1, tile_rows_.bytes())),
      to_at_(local_.add<std::int64_t>(TileRows::kMaxRows)),
      rows_at_(local_.add<std::byte*>(TileRows::kMaxRows)),
      first_at_(local_.add<float>(result_floats(kernels))),
      second_at_(local_.add<float>(spec.up.defined() ? result_floats(kernels) : 0)) {}

void ExpertProduct::run(const CpuRun& run, const float* factor) const {
  if (run.region.rank() == 0) plan(run);
  run.region.for_each(rows_to_fill(), [&](std::int64_t r) { fill(run, r); });
  pack(run);
  multiply(run, factor);
}

void ExpertProduct::fill(const CpuRun& run, std::int64_t row) const {
  bank_.fill(run.shared + bank_at_, row, kernels_, scratch_at<float>(run.local, tile_rows_at_ + tile_rows_.x));
}

void ExpertProduct::fill_part(const CpuRun& run, std::int64_t row, std::int64_t first, std::int64_t end) const {
  bank_.fill_part(run.shared + bank_at_, row, first, end, kernels_,
                  scratch_at<float>(run.local, tile_rows_at_ + tile_rows_.x));
}

TileRows ExpertProduct::rows(const CpuRun& run) const {
  return {bank_, run.shared + bank_at_, kernels_, tile_rows_, run.local + tile_rows_at_};
}

void ExpertProduct::plan(const CpuRun& run) const {
  auto* blocks_before = scratch_at<std::int64_t>(run.shared, blocks_at_);
  auto* owner = scratch_at<std::int64_t>(run.shared, owner_at_);
  std::int64_t blocks = 0;
  for (std::int64_t list = 0; list < lists_->max_lists(); ++list) {
    blocks_before[list] = blocks;
    const std::int64_t begin = lists_->begin(list);
    const std::int64_t end = lists_->end(list);
    if (end <= begin) continue;
    blocks += (end - begin + TileRows::kMaxRows - 1) / TileRows::kMaxRows;
    for (std::int64_t i = begin; i < end && lists_->may_repeat_outputs(); ++i) {
      if (const RowSlot slot = lists_->slot(list, i); slot.from >= 0) owner[slot.to] = slot_key(list, i);
    }
  }
  blocks_before[lists_->max_lists()] = blocks;
  cut(run);
}

void ExpertProduct::plan_as(const ExpertProduct& other, const CpuRun& other_run, const CpuRun& run) const {
  std::copy_n(scratch_at<std::int64_t>(other_run.shared, other.blocks_at_), lists_->max_lists() + 1,
              scratch_at<std::int64_t>(run.shared, blocks_at_));
  cut(run);
}

void ExpertProduct::cut(const CpuRun& run) const {
  const std::int64_t blocks = scratch_at<std::int64_t>(run.shared, blocks_at_)[lists_->max_lists()];
  Plan& plan = *scratch_at<Plan>(run.shared, plan_at_);
  plan.has_plain = false;
  plan.n_columns = lists_->columns(spec_.w.dim(1));
  const std::int64_t tiles = (plan.n_columns + kTileColumns - 1) / kTileColumns;
  // Enough items that the last ones to finish are short, few enough that a thread streams through its weights.
  // A strip of several tiles reads its rows less often: as long as there are two items for each thread.
  plan.n_packs = plan_packs(run);
  const std::int64_t threads = run.region.size();
  const std::int64_t least = plan.n_packs > 0 ? std::clamp<std::int64_t>(blocks * tiles / (threads * 2), 1, 4) : 1;
  plan.tiles_per_item = std::clamp<std::int64_t>(blocks * tiles / (threads * 32), least, kMaxStripTiles);
  // Whole chunks of a next product's rows, where that is not much more.
  if (plan.tiles_per_item > kChunkTiles / 2) plan.tiles_per_item = kChunkTiles;
  plan.items_per_block = (tiles + plan.tiles_per_item - 1) / plan.tiles_per_item;
  plan.n_items = blocks * plan.items_per_block;
  plan.chunks_at_once = std::max<std::int64_t>(1, spec_.w.dim(2) / kChunk * plan.n_packs / threads);
}

// Lists of many rows are packed once for all their items; where lists repeat rows so much that the room for it does not
// do, not at all.
std::int64_t ExpertProduct::plan_packs(const CpuRun& run) const {
  if (max_packs_ == 0) return 0;
  auto* before = scratch_at<std::int64_t>(run.shared, packs_before_at_);
  std::int64_t packs = 0;
  for (std::int64_t list = 0; list < lists_->max_lists(); ++list) {
    before[list] = packs;
    const std::int64_t rows = lists_->end(list) - lists_->begin(list);
    if (rows >= kernels_.product.strips->from_rows) packs += (rows + kPackRows - 1) / kPackRows;
    if (packs > max_packs_) return 0;
  }
  before[lists_->max_lists()] = packs;
  return packs;
}

std::byte* ExpertProduct::pack_at(const CpuRun& run, std::int64_t list, std::int64_t slot) const {
  if (scratch_at<Plan>(run.shared, plan_at_)->n_packs == 0) return nullptr;
  const auto* before = scratch_at<std::int64_t>(run.shared, packs_before_at_) + list;
  if (before[0] == before[1]) return nullptr;
  const std::int64_t pack = before[0] + (slot - lists_->begin(list)) / kPackRows;
  return run.shared + packs_at_ + pack * TileRows::packed_bytes(spec_.w.dim(2), kernels_);
}

template <class Visit>
void ExpertProduct::for_slots(const CpuRun& run, std::int64_t list, std::int64_t first, std::int64_t end,
                              Visit&& visit) const {
  const auto* owner = scratch_at<std::int64_t>(run.shared, owner_at_);
  for (std::int64_t i = first; i < end; ++i) {
    const RowSlot slot = lists_->slot(list, i);
    if (slot.from < 0 || (lists_->may_repeat_outputs() && owner[slot.to] != slot_key(list, i))) continue;
    visit(slot);
  }
}

void ExpertProduct::pack(const CpuRun& run) const {
  const Plan& plan = *scratch_at<Plan>(run.shared, plan_at_);
  if (plan.n_packs == 0) return;  // threads need not meet
  const auto* before = scratch_at<std::int64_t>(run.shared, packs_before_at_);
  const std::int64_t chunks = spec_.w.dim(2) / kChunk;
  const std::int64_t parts = (chunks + plan.chunks_at_once - 1) / plan.chunks_at_once;
  run.region.for_each(plan.n_packs * parts, [&](std::int64_t item) {
    const std::int64_t pack = item / parts;
    const std::int64_t first_chunk = item % parts * plan.chunks_at_once;
    const std::int64_t list = std::upper_bound(before, before + lists_->max_lists() + 1, pack) - before - 1;
    const std::int64_t at = (pack - before[list]) * kPackRows;
    const std::int64_t first = lists_->begin(list) + at;
    const std::int64_t end = std::min(lists_->end(list), first + kPackRows);
    TileRows rows = this->rows(run);
    for_slots(run, list, first, end, [&](const RowSlot& slot) { rows.add(slot.from); });
    if (rows.size() == 0) return;
    const std::int64_t in_strip = at % TileRows::kMaxRows;  // a strip is the rows of an item
    const std::int64_t strip = first - in_strip;
    const std::int64_t strip_rows = std::min(lists_->end(list) - strip, TileRows::kMaxRows);
    rows.pack_into(pack_at(run, list, strip), in_strip, strip_rows, first_chunk,
                   std::min(chunks, first_chunk + plan.chunks_at_once));
  });
}

void ExpertProduct::multiply(const CpuRun& run, const float* factor) const {
  const std::int64_t end = n_items(run);
  run.region.for_each_ahead(
      end, [&](std::int64_t item, std::int64_t next) { multiply_item(run, item, next < end ? next : -1, factor); });
}

bool ExpertProduct::multiply_and_fill(const CpuRun& run, const ExpertProduct& next, const CpuRun& next_run) const {
  const Plan& plan = *scratch_at<Plan>(run.shared, plan_at_);
  const Plan& next_plan = *scratch_at<Plan>(next_run.shared, next.plan_at_);
  if (plan.tiles_per_item % kChunkTiles != 0) {
    multiply(run);
    const std::int64_t n_rows = lists_->end(lists_->max_lists() - 1);  // lists are packed: each begins where one ended
    run.region.for_each(n_rows, [&](std::int64_t row) { next.fill(next_run, row); });
    return false;
  }
  const bool packs = max_packs_ > 0 && next_plan.n_packs > 0;
  run.region.for_each_ahead(plan.n_items, [&](std::int64_t index, std::int64_t after) {
    const Item item = item_at(run, index);
    after = after < plan.n_items ? after : -1;
    if (packs && next.is_packed(next_run, item)) {
      multiply_columns(run, item, after, [&](const TileRows& rows, std::int64_t, std::int64_t, const float* results) {
        next.pack_results(next_run, item, results, rows.tile_stride());
      });
      return;
    }
    multiply_item(run, index, after, nullptr);
    for_slots(run, item.list, item.first_slot, item.end_slot,
              [&](const RowSlot& slot) { next.fill_part(next_run, slot.to, item.first_column, item.end_column); });
  });
  if (!packs || !next_plan.has_plain) return packs;
  // Rows that are not to be packed are rare enough to compute them once more.
  run.region.for_each(plan.n_items, [&](std::int64_t index) {
    const Item item = item_at(run, index);
    if (next.is_packed(next_run, item) && next.has_plain(next_run, item)) multiply_item(run, index, -1, nullptr);
  });
  return true;
}

void ExpertProduct::pack_results(const CpuRun& run, const Item& item, const float* results,
                                 std::int64_t tile_stride) const {
  struct alignas(64) Part {
    std::int8_t q[kChunk];
    std::int16_t sum16[kChunk / 16];
    std::int16_t sum32[kChunk / 32];
    float scale;
  };
  Part parts[kPackRows];
  ProductRow rows[kPackRows];
  alignas(64) float x[kChunk];
  std::byte stored[kChunk * sizeof(float)];
  const std::int64_t n_rows = item.end_slot - item.first_slot;
  const std::int64_t chunk = item.first_column / kChunk;
  std::byte* const to = pack_at(run, item.list, item.first_slot);
  for (std::int64_t first = 0; first < n_rows; first += kPackRows) {
    const std::int64_t count = std::min(kPackRows, n_rows - first);
    for (std::int64_t r = 0; r < count; ++r) {
      const float* row = results + (first + r) * kTileColumns;
      for (std::int64_t n = 0; n < kChunkTiles; ++n)
        std::copy_n(row + n * tile_stride, kTileColumns, x + n * kTileColumns);
      if (spec_.x.dtype != DType::f32) {  // rounded as it would have been stored
        kernels_.row.store(spec_.x.dtype, x, stored, kChunk);
        kernels_.row.load(spec_.x.dtype, stored, x, kChunk);
      }
      Part& part = parts[r];
      const bool usable = kernels_.product.quantize(x, kChunk, part.q, &part.scale, part.sum16, part.sum32);
      bank_.set_usable(run.shared + bank_at_, item.first_slot + first + r, chunk, usable);
      if (!usable) scratch_at<Plan>(run.shared, plan_at_)->has_plain = true;
      rows[r] = {.x = nullptr, .q = part.q, .scale = &part.scale, .sum16 = part.sum16, .sum32 = part.sum32};
    }
    kernels_.product.strips->pack({.rows = rows,
                                   .n_rows = count,
                                   .first = first,
                                   .strip_rows = n_rows,
                                   .first_chunk = chunk,
                                   .end_chunk = chunk + 1,
                                   .to = to,
                                   .rows_begin = chunk});
  }
}

bool ExpertProduct::has_plain(const CpuRun& run, const Item& item) const {
  for (std::int64_t r = item.first_slot; r < item.end_slot; ++r) {
    if (bank_.is_plain(run.shared + bank_at_, r)) return true;
  }
  return false;
}

ExpertProduct::Item ExpertProduct::item_at(const CpuRun& run, std::int64_t index) const {
  const Plan& plan = *scratch_at<Plan>(run.shared, plan_at_);
  const auto* blocks_before = scratch_at<std::int64_t>(run.shared, blocks_at_);
  const std::int64_t block = index / plan.items_per_block;
  const std::int64_t list =
      std::upper_bound(blocks_before, blocks_before + lists_->max_lists() + 1, block) - blocks_before - 1;
  Item item{.list = list};
  item.first_slot = lists_->begin(list) + (block - blocks_before[list]) * TileRows::kMaxRows;
  item.end_slot = std::min(lists_->end(list), item.first_slot + TileRows::kMaxRows);
  item.first_column = index % plan.items_per_block * plan.tiles_per_item * kTileColumns;
  item.end_column = std::min(plan.n_columns, item.first_column + plan.tiles_per_item * kTileColumns);
  return item;
}

void ExpertProduct::multiply_item(const CpuRun& run, std::int64_t index, std::int64_t next, const float* factor) const {
  const auto* to = scratch_at<std::int64_t>(run.local, to_at_);
  auto* row_at = scratch_at<std::byte*>(run.local, rows_at_);
  multiply_columns(run, item_at(run, index), next,
                   [&](const TileRows& rows, std::int64_t n, std::int64_t count, float* results) {
                     for (std::int64_t at = 0; at < count; at += kTileColumns, results += rows.tile_stride()) {
                       const std::int64_t here = std::min<std::int64_t>(kTileColumns, count - at);
                       if (stores_tiles_ && here == kTileColumns && factor == nullptr) {
                         const auto offset = (n + at) * static_cast<std::int64_t>(sizeof(float));
                         kernels_.row.store_tile(results, row_at, offset, rows.size(), past_caches_);
                         continue;
                       }
                       for (std::int64_t r = 0; r < rows.size(); ++r) {
                         float* values = results + kTileColumns * r;
                         if (factor != nullptr) kernels_.row.scale(factor[to[r]], values, values, here);
                         store(row_at[r], n + at, here, values);
                       }
                     }
                   });
  if (past_caches_) kernels_.row.lines_stored();
}

template <class Give>
void ExpertProduct::multiply_columns(const CpuRun& run, const Item& item, std::int64_t next, Give&& give) const {
  TileRows rows = this->rows(run);
  auto* to = scratch_at<std::int64_t>(run.local, to_at_);
  auto* row_at = scratch_at<std::byte*>(run.local, rows_at_);
  for_slots(run, item.list, item.first_slot, item.end_slot, [&](const RowSlot& slot) {
    to[rows.size()] = slot.to;
    const Tensor out = flat_row(spec_.out, slot.to);
    row_at[rows.size()] = out.buffer->host() + out.byte_offset;
    rows.add(slot.from);
  });
  if (rows.size() == 0) return;
  const bool every_slot = rows.size() == item.end_slot - item.first_slot;
  rows.ready(every_slot ? pack_at(run, item.list, item.first_slot) : nullptr);

  const Item after = next < 0 ? item : item_at(run, next);
  const std::int64_t width = columns_at_once(rows);
  // What the rows meet at a time from column n of one of the matrices on: in this item, or at the beginning of the next.
  const auto ahead = [&](const Tensor& stack, const Tensor& w, std::int64_t n) -> TileRows::Ahead {
    const std::int64_t asked = rows.columns_at_once(w.dtype);
    if (n < item.end_column) return TileRows::ahead(w, n, std::min(n + asked, item.end_column));
    if (next < 0) return {};
    return TileRows::ahead(select_outer(stack, lists_->expert(after.list)), after.first_column,
                           std::min(after.first_column + asked, after.end_column));
  };
  const Tensor w = select_outer(spec_.w, lists_->expert(item.list));
  const Tensor up = spec_.up.defined() ? select_outer(spec_.up, lists_->expert(item.list)) : Tensor{};
  for (std::int64_t n = item.first_column; n < item.end_column; n += width) {
    const std::int64_t count = std::min(width, item.end_column - n);
    auto* first = scratch_at<float>(run.local, first_at_);
    auto* second = scratch_at<float>(run.local, second_at_);
    // Tiles of gate and up by turns ask for their own matrix's next one. A run of gate asks for up's, and that for gate's
    // next: the L2 would have to hold three of them.
    const bool in_runs = up.defined() && width > kTileColumns;
    rows.multiply(w, n, count, in_runs ? ahead(spec_.up, up, n) : ahead(spec_.w, w, n + count), first);
    if (up.defined()) {
      rows.multiply(up, n, count, in_runs ? ahead(spec_.w, w, n + count) : ahead(spec_.up, up, n + count), second);
    }
    for (std::int64_t at = 0; at < count && up.defined(); at += kTileColumns) {
      float* gate = first + at / kTileColumns * rows.tile_stride();
      const float* factors = second + at / kTileColumns * rows.tile_stride();
      kernels_.row.gate(spec_.act, gate, factors, gate, rows.size() * kTileColumns);
    }
    give(rows, n, count, first);
  }
}

std::int64_t ExpertProduct::columns_at_once(const TileRows& rows) const {
  std::int64_t width = rows.columns_at_once(spec_.w.dtype);
  if (!spec_.up.defined()) return width;
  width = std::max(width, rows.columns_at_once(spec_.up.dtype));
  // Few rows: as many tiles as there is room for, so that memory is read in long runs.
  if (width == kTileColumns && rows.size() <= kFewRows) width *= result_floats(kernels_) / rows.tile_stride();
  return width;
}

void ExpertProduct::store(std::byte* row, std::int64_t first, std::int64_t count, float* values) const {
  for (std::int64_t n = 0; n < count && spec_.bias.defined(); ++n) values[n] += load(spec_.bias, {first + n});
  const Tensor& out = spec_.out;
  kernels_.row.store(out.dtype, values, row + first * out.stride(out.rank - 1), count);
}

}  // namespace conclave
