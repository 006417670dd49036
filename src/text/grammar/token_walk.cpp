#include "text/grammar/token_walk.h"

#include <algorithm>

namespace lockstep {

namespace {
void set_bit(std::span<std::uint32_t> words, std::int32_t token) {
  if (const auto word = static_cast<std::size_t>(token) / 32; word < words.size()) words[word] |= 1u << token % 32;
}
}  // namespace

std::size_t MaskStore::KeyHash::operator()(const Key& k) const {
  std::size_t h = static_cast<std::size_t>(k.machine) * 0x9e3779b97f4a7c15u ^ static_cast<std::size_t>(k.state);
  for (std::int32_t x : {k.depth, k.need, k.room}) h = (h ^ static_cast<std::size_t>(x)) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 31);
}

std::uint64_t MaskStore::new_machine() {
  const std::lock_guard lock(mutex_);
  return ++machines_;
}

std::shared_ptr<const LocalMask> MaskStore::find(const Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(key);
  if (found == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->mask;
}

void MaskStore::put(const Key& key, std::shared_ptr<const LocalMask> mask) {
  const std::lock_guard lock(mutex_);
  if (mask->bytes() > most_ || places_.contains(key)) return;
  bytes_ += mask->bytes();
  entries_.push_front({key, std::move(mask)});
  places_.emplace(key, entries_.begin());
  while (bytes_ > most_) drop(std::prev(entries_.end()));
}

std::size_t MaskStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void MaskStore::drop(Entries::iterator entry) {
  bytes_ -= entry->mask->bytes();
  places_.erase(entry->key);
  entries_.erase(entry);
}

MaskStore::Key MaskCache::key_of(const Stacks::Frame& f) const {
  const Machine::Rule& rule = machine_.rules[static_cast<std::size_t>(machine_.states[static_cast<std::size_t>(f.state)].rule)];
  const auto most = static_cast<std::int64_t>(tokens_.longest());
  return {id_, f.state, rule.calls ? f.depth : 0, static_cast<std::int32_t>(std::clamp<std::int64_t>(rule.minimum - f.count, 0, most)),
          static_cast<std::int32_t>(rule.maximum == kNoMaximum ? most : std::clamp<std::int64_t>(rule.maximum - f.count, 0, most))};
}

// Every node below `node` that bytes lead to from the stack: on_token for each of its tokens, on_node(index, tops) for
// it.
template <class OnToken, class OnNode>
void MaskCache::walk(Stacks& stacks, std::int32_t top, std::uint32_t node, const OnToken& on_token, const OnNode& on_node) const {
  const std::vector<TokenBytes::Node>& nodes = tokens_.nodes();
  struct Level {
    std::vector<std::int32_t> tops;
    std::size_t frames = 0;  // when this level was made
  };
  std::vector<Level> levels(1);
  levels[0].tops = {top};
  levels[0].frames = stacks.size();
  const std::size_t base = nodes[node].depth;
  for (std::uint32_t i = node + 1; i < nodes[node].end;) {
    const std::size_t depth = nodes[i].depth - base;
    if (levels.size() <= depth) levels.emplace_back();
    const Level& from = levels[depth - 1];
    Level& to = levels[depth];
    stacks.truncate(from.frames);
    to.tops.clear();
    const std::uint8_t byte = nodes[i].byte;
    bool done = false;
    if (from.tops.size() == 1) {  // by far the most: one stack inside a text
      const Stacks::Frame f = stacks.frame(from.tops[0]);
      const Machine::State& state = machine_.states[static_cast<std::size_t>(f.state)];
      if (!state.accepts && state.calls == machine_.states[static_cast<std::size_t>(f.state) + 1].calls) {
        done = true;
        if (stacks.may_step(f, byte)) to.tops.push_back(stacks.over(f, byte));
      }
    }
    if (!done)
      for (std::int32_t t : from.tops) stacks.step(t, byte, to.tops);
    if (to.tops.empty()) {
      i = nodes[i].end;
      continue;
    }
    to.frames = stacks.size();
    for (std::uint32_t t = nodes[i].tokens; t < nodes[i + 1].tokens; ++t) on_token(tokens_.order()[t]);
    on_node(i, to.tops);
    ++i;
  }
  stacks.truncate(levels[0].frames);
}

LocalMask MaskCache::find(const Stacks::Frame& frame) const {
  LocalMask mask;
  mask.words.assign(tokens_.words(), 0);
  std::size_t count = 0;
  Stacks stacks(machine_);
  const std::int32_t top = stacks.push(Stacks::kBottom, frame.state, frame.count, frame.depth);
  if (stacks.may_end(top)) mask.exits.push_back(0);
  walk(
      stacks, top, 0,
      [&](std::int32_t token) {
        set_bit(mask.words, token);
        ++count;
      },
      [&](std::uint32_t node, const std::vector<std::int32_t>& tops) {
        if (tokens_.nodes()[node].end == node + 1) return;
        for (std::int32_t t : tops)
          if (stacks.may_end(t)) return mask.exits.push_back(node);
      });
  if (count <= mask.words.size() / 2) {
    for (std::size_t w = 0; w < mask.words.size(); ++w)
      for (std::uint32_t bits = mask.words[w]; bits != 0; bits &= bits - 1)
        mask.tokens.push_back(static_cast<std::int32_t>(w * 32 + static_cast<std::size_t>(__builtin_ctz(bits))));
    mask.words = {};
  }
  return mask;
}

std::shared_ptr<const LocalMask> MaskCache::of(const Stacks::Frame& frame) const {
  const MaskStore::Key key = key_of(frame);
  if (std::shared_ptr<const LocalMask> known = tokens_.masks().find(key)) return known;
  auto mask = std::make_shared<const LocalMask>(find(frame));
  tokens_.masks().put(key, mask);
  return mask;
}

void MaskCache::allowed(Stacks& stacks, std::int32_t top, std::span<std::uint32_t> words) const {
  for (std::int32_t at = top; at != Stacks::kBottom;) {
    const Stacks::Frame frame = stacks.frame(at);
    const std::shared_ptr<const LocalMask> mask = of(frame);
    for (std::size_t w = 0; w < std::min(words.size(), mask->words.size()); ++w) words[w] |= mask->words[w];
    for (std::int32_t token : mask->tokens) set_bit(words, token);
    if (frame.below != Stacks::kBottom)
      for (std::uint32_t node : mask->exits)
        if (node != 0)
          walk(
              stacks, frame.below, node, [&](std::int32_t token) { set_bit(words, token); }, [](std::uint32_t, const std::vector<std::int32_t>&) {});
    // Where the rule may end already here, the frame below may go on with any token.
    at = !mask->exits.empty() && mask->exits[0] == 0 ? frame.below : Stacks::kBottom;
  }
}

}  // namespace lockstep
