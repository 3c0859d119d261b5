// Where positions of sequences lie in the paged cache.
#pragma once

#include "backends/metal/kernels/kernel.h"

struct KvPlace {
  int page;  // -1: it is not there
  int slot;
};
static inline KvPlace kv_place(constant View& pages, device uchar* pages_base, constant View& pool, long seq,
                               long position) {
  if (seq < 0 || seq >= pages.dims[0] || position < 0) return {-1, 0};
  const long page_size = pool.dims[1];
  const long nth = position / page_size;
  if (nth >= pages.dims[1]) return {-1, 0};
  const int page = ((const device int*)row_at(pages, pages_base, seq))[nth];
  if (page < 0 || page >= pool.dims[0]) return {-1, 0};
  return {page, int(position % page_size)};
}
static inline device uchar* kv_row(constant View& pool, device uchar* base, KvPlace place, long head) {
  return base + pool.offset + place.page * pool.strides[0] + place.slot * pool.strides[1] + head * pool.strides[2];
}
