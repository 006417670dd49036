#include "sync/tensor_update.h"

#include "base/error.h"

namespace lockstep {

void TensorUpdate::refuse(const Link& link, const std::string& digest) const {
  fail(ErrorCode::corrupt_file,
       "snapshot {}: tensor {} has the digest {}, expected {}; its object {} in '{}' is damaged: push the snapshot again, or pull from another store",
       link.snapshot.substr(0, 12), quoted_name(shape_.name), digest, link.result, link.object, store_);
}

void TensorUpdate::add(const std::string& snapshot, TensorCodec codec, std::string payload, const std::string& object, const std::string& result) {
  Link& link = links_.emplace_back(Link{snapshot, std::move(payload), object, result, {}, {}});
  payload_bytes_ += link.payload.size();
  try {
    link.decoder.emplace(codec, shape_.type, link.payload, shape_.bytes);
  } catch (const Error& e) {
    refuse(link, fmt::format("none ({})", e.message()));
  }
}

void TensorUpdate::next(char* bytes, std::size_t size) {
  for (Link& link : links_) {
    try {
      link.decoder->next(bytes, size, bytes);
    } catch (const Error& e) {
      refuse(link, fmt::format("none ({})", e.message()));
    }
    link.digest.update(bytes, size);
  }
}

void TensorUpdate::finish() {
  for (Link& link : links_) {
    try {
      link.decoder->finish();
    } catch (const Error& e) {
      refuse(link, fmt::format("none ({})", e.message()));
    }
    if (const std::string digest = link.digest.hex(); digest != link.result) refuse(link, digest);
  }
}

}  // namespace lockstep
