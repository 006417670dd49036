// Recognises Git LFS pointers: in a clone without the large files, a file is three lines of text that name it. Any thread.
//   refuse_lfs_pointer("models/a/tokenizer.json", text);
#pragma once
#include <string_view>

namespace lockstep {

// How a pointer file begins, and how many bytes are needed to recognise one.
inline constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/v1";

// Error corrupt_file, with the command that fetches the file, when `bytes`, the file's first ones, are a pointer's.
void refuse_lfs_pointer(std::string_view path, std::string_view bytes);

}  // namespace lockstep
