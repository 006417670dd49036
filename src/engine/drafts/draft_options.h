// Which drafts a request uses for speculative decoding, and how they fared. A draft is a guess at the next tokens: one forward computes the next
// token and the tokens behind the draft's, and draft tokens that equal the sampled ones are accepted (docs/speculation.md). No bit of an answer
// depends on drafts, except under Acceptance::rejection. Plain values.
//   DraftOptions options = parse_drafts("ngram,grammar", 5); draft_names(options.sources)
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Sources of drafts: a row each of draft_sources() (engine/drafts/draft_source.h), in the order in which they are tried.
enum class DraftKind : std::uint8_t { scripted, grammar, prediction, siblings, ngram, mtp };
inline constexpr std::size_t kDraftKinds = 6;

struct DraftOptions {
  enum class Length : std::uint8_t { off, fixed, automatic };
  // How draft tokens are accepted. coupled: when they equal what the model samples, so no bit of an answer depends on them. rejection: with
  // probability min(1, p / q), else another token is drawn; the answer has the model's distribution, but its bits depend on the draft
  // (engine/drafts/verify.h).
  enum class Acceptance : std::uint8_t { coupled, rejection };
  static constexpr std::int64_t kMostTokens = 8;

  Length length = Length::off;
  std::uint32_t sources = 0;  // bit k: DraftKind k
  std::int64_t tokens = 5;    // at most, 1 to kMostTokens
  Acceptance acceptance = Acceptance::coupled;

  bool rejects() const { return length != Length::off && acceptance == Acceptance::rejection; }

  bool has(DraftKind kind) const { return length != Length::off && (sources >> static_cast<int>(kind) & 1) != 0; }
};

// "auto" (every source, while it pays), "off", or names of sources separated by commas, which then always draft. Error invalid_argument, which calls
// the text `field`.
DraftOptions parse_drafts(std::string_view text, std::int64_t tokens, std::string_view field = "speculate");
// Error invalid_argument when a named source is missing: `mtp` in a model without such a layer (engine/drafts/mtp_steps.h).
// "auto" means all that exist.
void check_draft_sources(const DraftOptions& options, bool has_layer, std::string_view field);
// Error invalid_argument where the length is none of 1 to kMostTokens.
void check_draft_tokens(std::int64_t tokens, std::string_view field);
// "coupled" or "rejection". Error invalid_argument, which calls the text `field`.
DraftOptions::Acceptance parse_acceptance(std::string_view text, std::string_view field = "acceptance");
std::vector<std::string> acceptance_names();
// Error invalid_argument: rejection with lengths or sources that depend on other requests (auto, siblings).
void check_acceptance(const DraftOptions& options, std::string_view field);
std::string draft_names(std::uint32_t sources);
std::string_view draft_name(DraftKind kind);
std::vector<DraftKind> draft_kinds();  // that options may name

// For tests: appends at most `most` tokens that may follow the text.
using DraftScript = std::function<void(std::span<const std::int32_t> text, std::int64_t most, std::vector<std::int32_t>& out)>;

// Of one request, or of all.
struct DraftCounters {
  std::int64_t drafts = 0, tokens = 0, accepted = 0;                       // drafts that were verified, tokens in them, tokens accepted
  std::array<std::int64_t, DraftOptions::kMostTokens> accepted_at = {};    // of accepted: the first of a draft, the second, ...
  std::array<std::int64_t, kDraftKinds> tokens_of = {}, accepted_of = {};  // by source
  std::int64_t tokens_by(DraftKind kind) const { return tokens_of[static_cast<std::size_t>(kind)]; }
  std::int64_t accepted_by(DraftKind kind) const { return accepted_of[static_cast<std::size_t>(kind)]; }
};

}  // namespace lockstep
