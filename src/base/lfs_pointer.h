// Git LFS keeps a large file elsewhere: a clone without it holds, at the file's place, three lines of text that name it. Any thread.
//   refuse_lfs_pointer("models/a/tokenizer.json", text);
#pragma once
#include <string_view>

namespace lockstep {

// How such a file begins, and how much of a file must be seen to know.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/v1";

// Error corrupt_file when `bytes`, the file's first, are a pointer's: with the command that gets the file.
void refuse_lfs_pointer(std::string_view path, std::string_view bytes);

}  // namespace lockstep
