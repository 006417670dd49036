#include "base/lfs_pointer.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hub_name.h"

namespace lockstep {
namespace {

TEST(LfsPointer, IsNamedWithItsCommandWhereverAFileIsRead) {
  const std::string path = ::testing::TempDir() + "tokenizer.json";
  std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  try {
    read_file(path, 1 << 20);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
    EXPECT_NE(e.message().find("git lfs pull"), std::string::npos) << e.message();
    EXPECT_NE(e.message().find(path), std::string::npos) << e.message();
  }
  EXPECT_NO_THROW(refuse_lfs_pointer(path, "version https://git-lfs.github.com/spec"));
}

TEST(HubName, IsToldWhereNoFolderIs) {
  try {
    refuse_hub_name("some-org/Model-1.5B");
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_NE(e.message().find("hf download some-org/Model-1.5B --local-dir "), std::string::npos) << e.message();
  }
  for (const std::string path : {std::string("some-org"), std::string("/some-org/model"), std::string("./org/model"), std::string("a/b/c"), std::string("org/"),
                                 std::string("no such/name"), std::string(LOCKSTEP_SOURCE_DIR "/models")})
    EXPECT_NO_THROW(refuse_hub_name(path)) << path;
}

}  // namespace
}  // namespace lockstep
