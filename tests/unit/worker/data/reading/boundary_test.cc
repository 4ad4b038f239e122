// Goal: paths are followed as the system follows them, as long as they stay
// within the root. Method: small folders with links.

#include "worker/data/reading/boundary.h"

#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/worker/data/data_files.h"

namespace syncline::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class BoundaryTest : public DataFilesTest {
 protected:
  BoundaryTest() : root_(Path("root"), /*bounded=*/true) {
    EXPECT_TRUE(MakeDirs(Path("root/a/b")).ok());
    Write("root/a/b/f", "inside");
    Write("outside", "secret");
  }
  void Link(const std::string& target, const char* name) {
    ASSERT_EQ(symlink(target.c_str(), Path(name).c_str()), 0);
  }
  std::string Content(const char* path) const {
    const auto file = OpenWithin(root_, Path(path));
    if (!file.ok()) {
      return IsOutside(file.status()) ? "(outside)" : "(error)";
    }
    char text[16];
    const ssize_t size = read(file->get(), text, sizeof(text));
    return std::string(text, size < 0 ? 0 : static_cast<size_t>(size));
  }
  absl::StatusCode CodeOf(const char* path) const {
    return OpenWithin(root_, Path(path)).status().code();
  }

  const DataRoot root_;
};

TEST_F(BoundaryTest, LinksWithinTheRootAreFollowed) {
  Link("a/b/f", "root/relative");
  Link(Path("root/a/b/f"), "root/absolute");
  Link("../a/b", "root/a/up-and-down");
  Link("relative", "root/link-to-link");
  Link(Path("root"), "root/itself");
  for (const char* path :
       {"root/a/b/f", "root/relative", "root/absolute", "root/a/up-and-down/f",
        "root/link-to-link", "root/itself/itself/a/b/f"}) {
    EXPECT_EQ(Content(path), "inside") << path;
  }
}

TEST_F(BoundaryTest, LinksThatLeaveItAreNot) {
  Link("../outside", "root/relative");
  Link("/etc/passwd", "root/absolute");
  Link("../root/a/b/f", "root/out-and-in");
  Link(Path("root/../outside"), "root/through-the-name");
  Link(Path("root-2/f"), "root/a-longer-name");
  for (const char* path :
       {"root/relative", "root/absolute", "root/out-and-in",
        "root/through-the-name", "root/a-longer-name", "outside", "absent"}) {
    EXPECT_EQ(Content(path), "(outside)") << path;
  }
}

TEST_F(BoundaryTest, EveryWalkEnds) {
  Link("loop", "root/loop");
  EXPECT_EQ(Content("root/loop"), "(error)");
  EXPECT_EQ(CodeOf("root/absent"), absl::StatusCode::kNotFound);
  EXPECT_EQ(CodeOf("root/a"), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Content("root/a/b/f/g"), "(error)");
  ASSERT_EQ(mkfifo(Path("root/pipe").c_str(), 0644), 0);
  EXPECT_EQ(CodeOf("root/pipe"), absl::StatusCode::kInvalidArgument);
}

TEST_F(BoundaryTest, PatternsMatchWithinIt) {
  Write("root/x-2", "");
  Write("root/x-10", "");
  Write("root/.x-3", "");
  EXPECT_THAT(*MatchWithin(root_, Path("root/x-*")),
              ElementsAre(Path("root/x-10"), Path("root/x-2")));
  EXPECT_THAT(*MatchWithin(root_, Path("root/*/?/f")),
              ElementsAre(Path("root/a/b/f")));
  EXPECT_THAT(*MatchWithin(root_, Path("root/no*")), IsEmpty());
  Link("..", "root/up");
  EXPECT_TRUE(IsOutside(MatchWithin(root_, Path("root/up/no*")).status()));
}

// A closed folder is one that jobs of no tenant do not enter.
TEST_F(BoundaryTest, AClosedFolderIsOutside) {
  ASSERT_TRUE(MakeDirs(Path("root/tenants/acme")).ok());
  Write("root/tenants/acme/f", "of acme");
  Write("root/a/f", "open");
  Link("tenants/acme", "root/link");
  DataRoot open_root = root_;
  open_root.closed = "tenants";
  for (const char* path : {"root/tenants/acme/f", "root/link/f"}) {
    EXPECT_EQ(Content(path), "of acme");
    EXPECT_TRUE(IsOutside(OpenWithin(open_root, Path(path)).status())) << path;
  }
  // A folder of that name elsewhere is as any other.
  ASSERT_TRUE(MakeDirs(Path("root/a/b/tenants")).ok());
  Write("root/a/b/tenants/f", "open");
  EXPECT_TRUE(OpenWithin(open_root, Path("root/a/b/tenants/f")).ok());
  // A pattern leaves it out.
  const auto matches = MatchWithin(open_root, Path("root/[at]*/f"));
  ASSERT_TRUE(matches.ok()) << matches.status();
  EXPECT_THAT(*matches, ElementsAre(Path("root/a/f")));
  EXPECT_TRUE(
      IsOutside(MatchWithin(open_root, Path("root/tenants/*/f")).status()));
}

}  // namespace
}  // namespace syncline::worker
