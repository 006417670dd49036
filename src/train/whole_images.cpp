#include "train/whole_images.h"

#include <cstring>
#include <utility>

namespace lockstep {

namespace {
std::string image_bytes(const WeightImages& images) {
  std::string bytes;
  const auto put = [&](const void* from, std::size_t size) { bytes.append(static_cast<const char*>(from), size); };
  for (const std::vector<float>& image : images) {
    const std::uint64_t size = image.size();
    put(&size, sizeof(size));
    put(image.data(), size * sizeof(float));
  }
  return bytes;
}

WeightImages images_of(const std::string& bytes) {
  WeightImages images;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t size;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    std::vector<float>& image = images.emplace_back(size);
    if (size > 0) std::memcpy(image.data(), bytes.data() + at, size * sizeof(float));
    at += size * sizeof(float);
  }
  return images;
}
}  // namespace

WeightImages whole_images(Ranks& ranks, const std::function<Sharding(const RankPlace&)>& sharding, const std::function<WeightImages(int)>& of) {
  const RankLayout& layout = ranks.layout();
  std::vector<WeightImages> shares(static_cast<std::size_t>(layout.replica()));
  if (ranks.all_here()) {
    ranks.run([&](int local) {
      const int rank = ranks.place(local).rank;
      WeightImages own = of(local);
      if (layout.data_of(rank) == 0) shares[static_cast<std::size_t>(rank)] = std::move(own);
    });
  } else {
    ranks.run([&](int local) {
      const RankPlace place = ranks.place(local);
      const WeightImages own = of(local);
      std::vector<std::string> all = place.world->gather_host(layout.data_of(place.rank) == 0 ? image_bytes(own) : std::string());
      for (std::size_t rank = 0; local == 0 && rank < shares.size(); ++rank) shares[rank] = images_of(std::exchange(all[rank], {}));
    });
  }
  if (layout.replica() == 1) return std::move(shares[0]);
  WeightImages whole;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) sharding({layout, static_cast<int>(rank)}).put_into(whole, std::exchange(shares[rank], {}));
  return whole;
}

}  // namespace lockstep
