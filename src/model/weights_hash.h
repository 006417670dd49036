// The published hash of a model's weights, computed tensor by tensor (of a whole image at once: weights_sha256 of model/weights.h). One thread.
//   WeightsHash hash; for (const FileTensor* file : files_by_name(manifest)) hash.tensor(*file), hash.values(numbers); hash.hex()
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "model/manifest.h"

namespace lockstep {

class WeightsHash {
 public:
  void tensor(const FileTensor& file);          // the next one, in the order of files_by_name
  void values(std::span<const float> numbers);  // its next values, row-major
  std::string hex() { return hash_.hex(); }

 private:
  Sha256 hash_;
};

std::vector<const FileTensor*> files_by_name(const Manifest& manifest);

}  // namespace lockstep
