#include "model/adapter.h"

#include <algorithm>
#include <cmath>

#include "base/give_way.h"

namespace lockstep {

PackedWeight AdapterWeights::packed(ParameterId id, const Profile& profile) const {
  const Parameter& p = layout->manifest().parameter(id);
  return {parameters[static_cast<std::size_t>(id)].view(), p.outputs, p.inputs, p.count, profile.maximum_leaves, 0};
}

WeightImages initial_adapter(const AdapterLayout& layout, std::uint64_t seed) {
  const Manifest& manifest = layout.manifest();
  WeightImages images(manifest.parameters().size());
  constexpr std::int64_t kValues = std::int64_t{1} << 16;  // values between two calls of give_way()
  std::vector<float> values;
  for (const FileTensor& file : manifest.files()) {
    const bool drawn = file.name.ends_with(".lora_A.weight");
    NamedUniform uniform(seed, file.name);
    const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(file.columns())));
    const std::int64_t step = std::max<std::int64_t>(1, kValues / file.columns());
    for (std::int64_t row = 0; row < file.rows(); row += step) {
      const std::int64_t rows = std::min(step, file.rows() - row), first = row * file.columns();
      values.assign(static_cast<std::size_t>(rows * file.columns()), 0.0f);
      for (std::size_t i = 0; drawn && i < values.size(); ++i) values[i] = uniform(static_cast<std::size_t>(first) + i) * bound;
      manifest.scatter(file, values.data(), images, row, rows);
      give_way();
    }
  }
  return images;
}

std::shared_ptr<const AdapterWeights> make_adapter(Backend& backend, std::shared_ptr<const AdapterLayout> layout, const WeightImages& images,
                                                   std::uint64_t version) {
  auto adapter = std::make_shared<AdapterWeights>();
  adapter->version = version;
  for (std::size_t i = 0; i < images.size(); ++i) {
    adapter->parameters.push_back(allocate_parameter(backend, layout->manifest().parameters()[i], DType::f32, MemoryCategory::weights));
    backend.stream().write(adapter->parameters.back().view(), images[i]);
  }
  adapter->layout = std::move(layout);
  return adapter;
}

}  // namespace lockstep
