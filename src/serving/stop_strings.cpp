#include "serving/stop_strings.h"

namespace lockstep {

StopStrings::StopStrings(const std::vector<std::string>& stops) : nodes_(1) {
  for (const std::string& stop : stops) {
    std::int32_t node = 0;
    for (const char byte : stop) {
      std::int32_t found = child(node, byte);
      if (found < 0) {
        found = static_cast<std::int32_t>(nodes_.size());
        nodes_.push_back({.sibling = nodes_[node].child, .length = nodes_[node].length + 1, .byte = byte});
        nodes_[node].child = found;
      }
      node = found;
    }
    nodes_[node].stop = static_cast<std::int32_t>(stop.size());
  }
  // Shorter beginnings first: a fallback is shorter.
  std::vector<std::int32_t> order{0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::int32_t parent = order[i];
    for (std::int32_t node = nodes_[parent].child; node >= 0; node = nodes_[node].sibling) {
      nodes_[node].fallback = parent == 0 ? 0 : next(nodes_[parent].fallback, nodes_[node].byte);
      if (nodes_[node].stop == 0) nodes_[node].stop = nodes_[nodes_[node].fallback].stop;
      order.push_back(node);
    }
  }
}

std::int32_t StopStrings::child(std::int32_t node, char byte) const {
  std::int32_t found = nodes_[node].child;
  while (found >= 0 && nodes_[found].byte != byte) found = nodes_[found].sibling;
  return found;
}

std::int32_t StopStrings::next(std::int32_t node, char byte) const {
  for (;;) {
    if (const std::int32_t found = child(node, byte); found >= 0) return found;
    if (node == 0) return 0;
    node = nodes_[node].fallback;
  }
}

std::optional<StopSearch::Found> StopSearch::push(std::string_view piece) {
  if (stops_->empty()) return std::nullopt;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    node_ = stops_->next(node_, piece[i]);
    if (const std::int32_t length = stops_->nodes_[node_].stop; length > 0) return Found{i + 1, static_cast<std::size_t>(length)};
  }
  return std::nullopt;
}

std::size_t StopSearch::waits() const { return static_cast<std::size_t>(stops_->nodes_[node_].length); }

}  // namespace lockstep
