// Writes images (model/weights.h) to bytes and reads them back; the reader is a process of the same build.
//   put_images(out, state.masters); const WeightImages masters = taken_images(in);
#pragma once
#include "base/byte_record.h"
#include "model/weights.h"

namespace lockstep {

inline void put_images(ByteWriter& out, const WeightImages& images) {
  out.value(static_cast<std::uint64_t>(images.size()));
  for (const std::vector<float>& image : images) out.values(image);
}

inline WeightImages taken_images(ByteReader& in) {
  WeightImages images;
  for (auto left = in.value<std::uint64_t>(); left > 0; --left) images.push_back(in.values<float>());
  return images;
}

}  // namespace lockstep
