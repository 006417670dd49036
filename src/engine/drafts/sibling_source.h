// Drafts from other answers to the same prompt: the other samples of a request, and earlier rollouts. Answers are stored by prompt and owner
// (Request::prefix_owner), so no draft reveals another owner's text. Beyond a limit of tokens the least recently used prompts are dropped. Used by
// one thread at a time; the texts outlive the sources made from them.
//   SiblingTexts texts; DraftMaterial material{.prompt = prompt, .siblings = &texts}; auto source = make_sibling_source(material);
#pragma once
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/drafts/draft_source.h"

namespace lockstep {

class SiblingTexts {
 public:
  explicit SiblingTexts(std::size_t most_tokens = std::size_t{1} << 18) : most_tokens_(most_tokens) {}

  // All answers to one prompt.
  class Group {
   public:
    std::size_t add_answer();  // its number
    // The answer's next token. `context`: the text before it, of which the last tokens are remembered with it.
    void append(std::size_t answer, std::span<const std::int32_t> context, std::int32_t token);
    void shorten(std::size_t answer, std::size_t tokens);
    std::size_t size(std::size_t answer) const { return answers_[answer].size(); }
    // What followed the end of `text` in an answer other than `own`, the latest one that had it, and the most of it that it had; appended to out.
    void follow(std::size_t own, std::span<const std::int32_t> text, std::int64_t most, std::vector<std::int32_t>& out) const;

   private:
    struct Place {
      std::uint32_t answer, at;
    };
    std::vector<std::vector<std::int32_t>> answers_;
    std::unordered_map<std::uint64_t, std::vector<Place>> places_;  // by the tokens before, the latest two answers
    std::size_t tokens_ = kGroupTokens;
    std::size_t* total_ = nullptr;  // of all kept groups; null: it was dropped, and only its sources have it
    void count(std::ptrdiff_t tokens);
    friend class SiblingTexts;
  };
  std::shared_ptr<Group> group(std::uint64_t owner, std::span<const std::int32_t> prompt);
  // Drops the least recently asked for, as long as there are too many tokens.
  void trim();
  std::size_t tokens() const { return total_; }
  std::size_t groups() const { return kept_.size(); }

 private:
  struct Kept {
    std::uint64_t key;
    std::shared_ptr<Group> group;
  };
  static constexpr std::size_t kGroupTokens = 16;  // a prompt takes as much memory as so many tokens of answers
  std::size_t most_tokens_, total_ = 0;
  std::list<Kept> kept_;  // most recently used first
  std::unordered_map<std::uint64_t, std::list<Kept>::iterator> places_;
};

std::unique_ptr<DraftSource> make_sibling_source(DraftMaterial& material);

}  // namespace lockstep
