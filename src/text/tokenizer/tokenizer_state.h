// The parts of a Tokenizer; for the files of this folder only.
// Thread rule: immutable once read.
#pragma once
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

struct Tokenizer::State {
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  std::int32_t id_limit = 0;
  Bpe::Barred mergeable_specials;  // special tokens that merging could write where nobody wrote one; mostly empty

  // Called when all tokens have been added.
  void find_mergeable_specials() {
    std::vector<std::int32_t> ids;
    for (const AddedToken& token : added.all())
      if (token.special) ids.push_back(token.id);
    mergeable_specials = bpe.makeable(ids);
  }

  // As decoders get it: an added token that is looked for in normalized text is shown normalized, as tokenizers 0.23 does.
  std::string_view text_of(std::int32_t id) const {
    if (const AddedToken* token = added.find(id)) return token->found_as;
    return bpe.vocabulary().text_of(id);
  }
};

}  // namespace lockstep
