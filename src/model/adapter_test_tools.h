// Adapters for tests whose B is not zero, as a new adapter's is: only then A has a gradient and the adapter changes what is computed. Tests only.
//   const WeightImages images = stirred(layout, 3);
#pragma once
#include "model/adapter.h"

namespace lockstep {

inline WeightImages stirred(const AdapterLayout& layout, std::uint64_t seed) {
  WeightImages images = initial_adapter(layout, seed);
  std::vector<float> values;
  for (const FileTensor& file : layout.manifest().files()) {
    if (!file.name.ends_with(".lora_B.weight")) continue;
    values.resize(static_cast<std::size_t>(file.size()));
    NamedUniform uniform(seed, file.name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * uniform(i);
    layout.manifest().scatter(file, values.data(), images);
  }
  return images;
}

}  // namespace lockstep
