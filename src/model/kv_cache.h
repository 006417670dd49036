// The paged key-value cache of a model: per layer one buffer of entries, and one of index keys where the layer has an indexer. Engine and trainer
// allocate pages themselves; both use this class.
//   KvCache cache(backend, shapes, profile, 1024, 16);  // 1024 pages of 16 positions
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "numerics/profile.h"

namespace lockstep {

struct CacheShape {
  std::int64_t entry = 0;      // values of an entry per position
  std::int64_t index_key = 0;  // 0: no indexer in this layer
  std::int64_t heads = 0;      // heads whose keys and values an entry holds, which ranks may split; 0: one entry for all heads
};

struct KvCache {
  std::int64_t page_size = 16, pages = 0;
  struct Layer {
    Buffer entry, index_key;
  };
  std::vector<Layer> layers;

  KvCache(Backend& backend, const std::vector<CacheShape>& shapes, const Profile& profile, std::int64_t page_count, std::int64_t positions_a_page)
      : page_size(positions_a_page), pages(page_count) {
    const DType dtype = profile.bf16_cache ? DType::bf16 : DType::f32;
    for (const CacheShape& shape : shapes) {
      layers.push_back({backend.device().allocate_zero(dtype, pages * page_size, shape.entry, MemoryCategory::cache), {}});
      if (shape.index_key > 0) layers.back().index_key = backend.device().allocate_zero(dtype, pages * page_size, shape.index_key, MemoryCategory::cache);
    }
  }
  // Bytes of one position over all layers.
  static std::int64_t bytes_a_position(const std::vector<CacheShape>& shapes, const Profile& profile) {
    std::int64_t values = 0;
    for (const CacheShape& shape : shapes) values += shape.entry + shape.index_key;
    return values * (profile.bf16_cache ? 2 : 4);
  }
};

}  // namespace lockstep
