// Unicode normalization forms, character by character, reporting the changes that alignments need in the order in which
// Hugging Face's normalizers report replaced, removed and inserted characters. Tables are utf8proc's (Unicode 14).
//   if (!is_normal(NormalForm::nfc, text)) text = normalize(NormalForm::nfc, text);
// Thread-safe (pure functions).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/aligned_text.h"

namespace lockstep {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// True only when normalizing changes nothing; false may be wrong. `text` is valid UTF-8.
bool is_normal(NormalForm form, std::string_view text);
std::string normalize(NormalForm form, std::string_view text);
// The normalized text as changes of `text`, for AlignedText::transform.
std::vector<CharacterChange> normalization_changes(NormalForm form, std::string_view text);

// Whether normalizing may join the character to the one before it.
bool joins_the_one_before(std::uint32_t codepoint);

// Lower-case as Rust's char::to_lowercase: without context, one character may become two.
std::vector<CharacterChange> lowercase_changes(std::string_view text);

}  // namespace lockstep
