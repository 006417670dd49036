#include "model/adapter_initial.h"

#include <cmath>

namespace lockstep {

WeightImages nora_adapter(const AdapterLayout& layout, std::uint64_t seed) {
  WeightImages images = initial_adapter(layout, seed);
  std::vector<float> values;
  for (const FileTensor& file : layout.manifest().files()) {
    if (!file.name.ends_with(".lora_A.weight")) continue;
    const auto rank = static_cast<std::size_t>(file.rows()), inputs = static_cast<std::size_t>(file.columns());
    values.resize(rank * inputs);
    layout.manifest().gather(file, images, values.data());
    for (std::size_t k = 0; k < inputs; ++k) {
      double squares = 0;
      for (std::size_t r = 0; r < rank; ++r) squares += static_cast<double>(values[r * inputs + k]) * static_cast<double>(values[r * inputs + k]);
      if (squares == 0) continue;
      const double length = std::sqrt(squares);
      for (std::size_t r = 0; r < rank; ++r) values[r * inputs + k] = static_cast<float>(static_cast<double>(values[r * inputs + k]) / length);
    }
    layout.manifest().scatter(file, values.data(), images);
  }
  return images;
}

}  // namespace lockstep
