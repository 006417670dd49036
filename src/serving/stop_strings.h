// Finds stop strings in text that arrives in pieces. Each byte is read once, however many stop strings there are (an Aho-Corasick automaton: A. V.
// Aho and M. J. Corasick, "Efficient string matching", 1975). The stop string that ends first wins; of two that end together, the longer. A
// StopStrings may be shared by threads; a StopSearch is for one text and one thread.
//   const auto stops = std::make_shared<const StopStrings>(std::vector<std::string>{"\n\n", "User:"});
//   StopSearch search(stops); if (const auto found = search.push("...\n")) ...; search.waits();  // 1: "\n" may become "\n\n"
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& stops);  // empty ones are ignored
  bool empty() const { return nodes_.size() == 1; }

 private:
  friend class StopSearch;
  // A state: a beginning of a stop string, with which the text may end. The first is "".
  struct Node {
    std::int32_t child = -1, sibling = -1;  // first state one byte longer; next state with the same parent
    std::int32_t fallback = 0;              // the state of the longest proper suffix
    std::int32_t length = 0;
    std::int32_t stop = 0;  // bytes of the longest stop string that is a suffix of it; 0: none
    char byte = 0;          // its last
  };
  std::int32_t child(std::int32_t node, char byte) const;
  std::int32_t next(std::int32_t node, char byte) const;
  std::vector<Node> nodes_;
};

class StopSearch {
 public:
  explicit StopSearch(std::shared_ptr<const StopStrings> stops) : stops_(std::move(stops)) {}
  struct Found {
    std::size_t end = 0;     // behind the stop string's last byte, in the piece
    std::size_t length = 0;  // of the stop string, which may begin in an earlier piece
  };
  // Stops reading at the first match.
  std::optional<Found> push(std::string_view piece);
  // How many bytes at the end of the text may begin a stop string.
  std::size_t waits() const;

 private:
  std::shared_ptr<const StopStrings> stops_;
  std::int32_t node_ = 0;
};

}  // namespace lockstep
