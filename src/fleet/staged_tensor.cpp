#include "fleet/staged_tensor.h"

#include <algorithm>

namespace lockstep {
namespace {
constexpr std::int64_t kOneInFew = 64, kFewOfSmall = 1024;  // changes of at most one element in so many are held; so are a thousand
}

StagedTensor::StagedTensor(const ModelTensors& tensors, StagedChange change, std::unique_ptr<TensorUpdate> update)
    : tensors_(tensors), change_(std::move(change)), update_(std::move(update)) {}

PassedTensor StagedTensor::passed(const std::function<void(std::map<ParameterId, ParameterChanges> some)>& take) {
  return {change_.tensor, change_.type,
          [this, take](std::int64_t first, char* words, std::size_t bytes) {
            old_.assign(words, bytes);
            update_->next(words, bytes);
            const std::string_view now(words, bytes);
            if (take) tensors_.each_change(change_.tensor, first, old_, now, change_.type, kMostChanges, take);
            else if (!change_.many) hold(first, now);
          },
          [this] {
            update_->finish();
            update_.reset();
            std::string().swap(old_);
          }};
}

void StagedTensor::hold(std::int64_t first, std::string_view now) {
  const auto into = [&](std::map<ParameterId, ParameterChanges>& all) {
    return [&](const std::map<ParameterId, ParameterChanges>& some) {
      for (const auto& [id, changes] : some) {
        count_ += changes.count();
        changes.each([&own = all[id]](std::int64_t offset, std::uint32_t bits) { own.add(offset, bits); });
      }
    };
  };
  tensors_.each_change(change_.tensor, first, old_, now, change_.type, kMostChanges, into(change_.there));
  tensors_.each_change(change_.tensor, first, now, old_, change_.type, kMostChanges, into(change_.back));
  const TensorShape& shape = tensors_.shapes()[change_.tensor];
  if (count_ / 2 <= std::max(static_cast<std::int64_t>(shape.bytes) / safetensors_type_bytes(shape.type) / kOneInFew, kFewOfSmall)) return;
  change_.many = true;
  change_.there.clear(), change_.back.clear();
}

}  // namespace lockstep
