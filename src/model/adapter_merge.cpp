#include "model/adapter_merge.h"

#include <map>

#include "base/error.h"

namespace lockstep {

WeightImages merged_weights(const Manifest& model, WeightImages weights, const AdapterLayout& layout, const WeightImages& adapter) {
  layout.check_fits(model);
  const Manifest& tensors = layout.manifest();
  std::map<std::string, const FileTensor*> by_name;
  for (const FileTensor& tensor : tensors.files()) by_name[tensor.name] = &tensor;
  const auto read = [](const Manifest& manifest, const FileTensor& file, const WeightImages& images) {
    std::vector<float> values(static_cast<std::size_t>(file.size()));
    manifest.gather(file, images, values.data());
    return values;
  };
  const auto scale = static_cast<double>(layout.scale());
  for (const FileTensor& file : tensors_by_layer(model)) {
    const Parameter& first = model.parameter(file.pieces[0].parameter);
    const std::string module = "base_model.model." + (first.tied ? "lm_head" : file.name.substr(0, file.name.rfind(".weight")));
    const auto found = by_name.find(module + ".lora_A.weight");
    if (found == by_name.end()) continue;
    if (first.tied)
      fail(ErrorCode::unsupported, "an adapter of the unembedding cannot be merged: '{}' is the input embedding too; allowed is an adapter without it",
           file.name);
    const FileTensor &a_file = *found->second, &b_file = *by_name.at(module + ".lora_B.weight");
    const std::vector<float> a = read(tensors, a_file, adapter), b = read(tensors, b_file, adapter);
    std::vector<float> values = read(model, file, weights);
    const auto rows = static_cast<std::size_t>(file.rows()), columns = static_cast<std::size_t>(file.columns()), rank = static_cast<std::size_t>(a_file.rows());
    std::vector<double> sum(columns);
    for (std::size_t n = 0; n < rows; ++n) {
      sum.assign(columns, 0.0);
      for (std::size_t r = 0; r < rank; ++r)
        for (std::size_t k = 0; k < columns; ++k) sum[k] += static_cast<double>(b[n * rank + r]) * static_cast<double>(a[r * columns + k]);
      for (std::size_t k = 0; k < columns; ++k) values[n * columns + k] = static_cast<float>(static_cast<double>(values[n * columns + k]) + scale * sum[k]);
    }
    model.scatter(file, values.data(), weights);
  }
  return weights;
}

}  // namespace lockstep
