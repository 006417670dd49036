#include "engine/drafts/sibling_source.h"

#include <algorithm>

#include "base/hash.h"

namespace lockstep {

namespace {
// Tokens before a place by which it is found, the most first: fewer say less, and more are seldom there.
constexpr std::size_t kSiblingContexts[] = {8, 4, 2};
constexpr std::size_t kPlacesKept = 2;

std::uint64_t context_key(std::span<const std::int32_t> context, std::size_t tokens) {
  const auto last = context.last(tokens);
  return xxh3(last.data(), last.size_bytes(), tokens);
}

class SiblingSource : public DraftSource {
 public:
  SiblingSource(SiblingTexts& texts, std::shared_ptr<SiblingTexts::Group> group) : texts_(texts), group_(std::move(group)), own_(group_->add_answer()) {}

  void propose(const DraftPlace& place, std::vector<std::int32_t>& out) override {
    read(place);
    if (place.draft.empty()) return group_->follow(own_, place.text, place.most, out);
    std::vector<std::int32_t> text(place.text.end() - static_cast<std::ptrdiff_t>(std::min(place.text.size(), kSiblingContexts[0])), place.text.end());
    text.insert(text.end(), place.draft.begin(), place.draft.end());
    group_->follow(own_, text, place.most, out);
  }
  void end(const DraftPlace& place) override {
    read(place);
    texts_.trim();  // the least recently asked for go, also those that are being answered: their sources go on alone
  }

 private:
  void read(const DraftPlace& place) {
    const auto prompt = static_cast<std::size_t>(place.prompt_length);
    const std::size_t said = place.text.size() - prompt;
    if (group_->size(own_) > said) group_->shorten(own_, said);
    for (std::size_t i = group_->size(own_); i < said; ++i) group_->append(own_, place.text.first(prompt + i), place.text[prompt + i]);
  }

  SiblingTexts& texts_;
  std::shared_ptr<SiblingTexts::Group> group_;
  std::size_t own_;
};
}  // namespace

void SiblingTexts::Group::count(std::ptrdiff_t tokens) {
  tokens_ += static_cast<std::size_t>(tokens);
  if (total_) *total_ += static_cast<std::size_t>(tokens);
}

std::size_t SiblingTexts::Group::add_answer() {
  answers_.emplace_back();
  count(1);
  return answers_.size() - 1;
}

void SiblingTexts::Group::append(std::size_t answer, std::span<const std::int32_t> context, std::int32_t token) {
  std::vector<std::int32_t>& own = answers_[answer];
  const Place place{static_cast<std::uint32_t>(answer), static_cast<std::uint32_t>(own.size())};
  own.push_back(token);
  count(1);
  for (const std::size_t tokens : kSiblingContexts) {
    if (context.size() < tokens) continue;
    std::vector<Place>& places = places_[context_key(context, tokens)];
    std::erase_if(places, [&](const Place& p) { return p.answer == place.answer; });
    if (places.size() == kPlacesKept) places.erase(places.begin());
    places.push_back(place);
  }
}

void SiblingTexts::Group::shorten(std::size_t answer, std::size_t tokens) {
  count(-static_cast<std::ptrdiff_t>(answers_[answer].size() - tokens));
  answers_[answer].resize(tokens);
}

void SiblingTexts::Group::follow(std::size_t own, std::span<const std::int32_t> text, std::int64_t most, std::vector<std::int32_t>& out) const {
  for (const std::size_t tokens : kSiblingContexts) {
    if (text.size() < tokens) continue;
    const auto it = places_.find(context_key(text, tokens));
    if (it == places_.end()) continue;
    for (auto place = it->second.rbegin(); place != it->second.rend(); ++place) {
      const std::vector<std::int32_t>& answer = answers_[place->answer];
      if (place->answer == own || place->at >= answer.size()) continue;  // or what stood there was taken back
      const auto from = answer.begin() + place->at;
      out.insert(out.end(), from, from + std::min<std::int64_t>(most, answer.end() - from));
      return;
    }
  }
}

std::shared_ptr<SiblingTexts::Group> SiblingTexts::group(std::uint64_t owner, std::span<const std::int32_t> prompt) {
  const std::uint64_t key = xxh3(prompt.data(), prompt.size_bytes(), xxh3(&owner, sizeof(owner)));
  if (const auto it = places_.find(key); it != places_.end()) {
    kept_.splice(kept_.begin(), kept_, it->second);
  } else {
    kept_.push_front({key, std::make_shared<Group>()});
    places_[key] = kept_.begin();
    Group& added = *kept_.front().group;
    added.total_ = &total_;
    total_ += added.tokens_;
  }
  return kept_.front().group;
}

void SiblingTexts::trim() {
  while (total_ > most_tokens_ && !kept_.empty()) {
    Group& last = *kept_.back().group;
    total_ -= last.tokens_;
    last.total_ = nullptr;
    places_.erase(kept_.back().key);
    kept_.pop_back();
  }
}

std::unique_ptr<DraftSource> make_sibling_source(DraftMaterial& material) {
  if (!material.siblings) return nullptr;
  return std::make_unique<SiblingSource>(*material.siblings, material.siblings->group(material.owner, material.prompt));
}

}  // namespace lockstep
