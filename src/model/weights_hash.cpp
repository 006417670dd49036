#include "model/weights_hash.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep {

void WeightsHash::tensor(const FileTensor& file) { hash_.update(file.name + '\0' + "F32" + '\0' + fmt::format("{}", fmt::join(file.shape, "x")) + '\0'); }

void WeightsHash::values(std::span<const float> numbers) { hash_.update(numbers.data(), numbers.size_bytes()); }

std::vector<const FileTensor*> files_by_name(const Manifest& manifest) {
  std::vector<const FileTensor*> files;
  for (const FileTensor& file : manifest.files()) files.push_back(&file);
  std::sort(files.begin(), files.end(), [](const FileTensor* a, const FileTensor* b) { return a->name < b->name; });
  return files;
}

}  // namespace lockstep
