// The regular expressions by which published byte-level tokenizers split text before merging. Constants only: readers of other formats may use them
// too.
//   const std::string pattern = kSplitThreeDigits;  // Llama 3, GLM-4
#pragma once

namespace lockstep {

#define LOCKSTEP_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LOCKSTEP_LETTERS_FIRST LOCKSTEP_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+)"
#define LOCKSTEP_REST R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LOCKSTEP_REST_WITH_SLASH R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LOCKSTEP_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})"
#define LOCKSTEP_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M})"
#define LOCKSTEP_NO_HAN R"(&&[^\p{Han}]])"
inline constexpr const char* kSplitThreeDigits = LOCKSTEP_LETTERS_FIRST R"(|\p{N}{1,3}|)" LOCKSTEP_REST;  // Llama 3, GLM-4
inline constexpr const char* kSplitOneDigit = LOCKSTEP_LETTERS_FIRST R"(|\p{N}|)" LOCKSTEP_REST;          // Qwen
inline constexpr const char* kSplitLlama4 =
    R"([^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER "]*" LOCKSTEP_LOWER "]+" LOCKSTEP_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER "]+" LOCKSTEP_LOWER
    "]*" LOCKSTEP_CONTRACTIONS R"(?|\p{N}{1,3}|)" LOCKSTEP_REST_WITH_SLASH;
inline constexpr const char* kSplitTekken = R"([^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER "]*" LOCKSTEP_LOWER
                                            "]+"
                                            R"(|[^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER "]+" LOCKSTEP_LOWER
                                            "]*"
                                            R"(|\p{N}|)" LOCKSTEP_REST_WITH_SLASH;  // Mistral Nemo
inline constexpr const char* kSplitKimi =
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER LOCKSTEP_NO_HAN "*" LOCKSTEP_LOWER LOCKSTEP_NO_HAN "+" LOCKSTEP_CONTRACTIONS
    R"(?|[^\r\n\p{L}\p{N}]?)" LOCKSTEP_UPPER LOCKSTEP_NO_HAN "+" LOCKSTEP_LOWER LOCKSTEP_NO_HAN "*" LOCKSTEP_CONTRACTIONS R"(?|\p{N}{1,3}|)" LOCKSTEP_REST;
#undef LOCKSTEP_CONTRACTIONS
#undef LOCKSTEP_LETTERS_FIRST
#undef LOCKSTEP_REST
#undef LOCKSTEP_REST_WITH_SLASH
#undef LOCKSTEP_UPPER
#undef LOCKSTEP_LOWER
#undef LOCKSTEP_NO_HAN
// DeepSeek-V3 splits three times: digits, CJK, the rest.
inline constexpr const char* kSplitDeepSeekDigits = R"(\p{N}{1,3})";
inline constexpr const char* kSplitDeepSeekCjk = "[一-龥\u3040-ゟ゠-ヿ]+";
inline constexpr const char* kSplitDeepSeekRest = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
                                                  R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace lockstep
