// Goal: a file has one name on all hosts whose data roots hold the same files.
// Method: roots that are written differently, links, and files outside.

#include "worker/data/reading/data_root.h"

#include <unistd.h>

#include <filesystem>

#include "common/system/file.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

class DataRootTest : public DataFilesTest {};

TEST_F(DataRootTest, IsAbsoluteAndPlain) {
  EXPECT_EQ(AbsolutePath("/a/./b/../c/"), "/a/c");
  EXPECT_EQ(AbsolutePath("/"), "/");
  EXPECT_EQ(AbsolutePath(""), std::filesystem::current_path().string());
  EXPECT_EQ(AbsolutePath("x"),
            (std::filesystem::current_path() / "x").string());
}

TEST_F(DataRootTest, NamesAreRelativeToTheRoot) {
  EXPECT_EQ(NameBelow("/data", "/data/a/b.csv"), "a/b.csv");
  EXPECT_EQ(NameBelow("/data/", "/data/a/b.csv"), "a/b.csv");
  EXPECT_EQ(NameBelow("/", "/data/b.csv"), "data/b.csv");
  EXPECT_EQ(NameBelow("/data", "/data-2/b.csv"), "/data-2/b.csv");
  EXPECT_EQ(NameBelow("/data", "/other/b.csv"), "/other/b.csv");
}

TEST_F(DataRootTest, ARootMayBeALink) {
  ASSERT_TRUE(MakeDirs(Path("real")).ok());
  ASSERT_EQ(symlink("real", Path("link").c_str()), 0);
  EXPECT_EQ(NameBelow(Path("link"), Path("link/b.csv")), "b.csv");
  EXPECT_EQ(
      NameBelow(Path("link"),
                std::filesystem::canonical(Path("real")).string() + "/b.csv"),
      "b.csv");
}

TEST_F(DataRootTest, ATenantHasAFolderOfItsOwn) {
  const DataRoot root("/data", /*bounded=*/true);
  const auto own = RootForTenant(root, "acme");
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->path, "/data/tenants/acme");
  EXPECT_TRUE(own->bounded);
  EXPECT_EQ(own->closed, "");
  const auto none = RootForTenant(root, "");
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->path, "/data");
  EXPECT_EQ(none->closed, "tenants");
}

TEST_F(DataRootTest, TenantsAreNotKeptApartWithoutABoundary) {
  EXPECT_EQ(RootForTenant("/data", "acme").status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(RootForTenant("/data", "")->closed, "");
  for (const char* name : {"..", ".", "a/b", "../b"}) {
    EXPECT_EQ(RootForTenant(DataRoot("/data", true), name).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace syncline::worker
