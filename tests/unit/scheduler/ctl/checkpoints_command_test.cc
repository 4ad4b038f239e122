// Goal: each command says what is there, and what is not; only checkpoints are
// deleted; what is exported is what the readers gave.
// Method: folders of the test's own, and tools that say what they were asked.

#include "scheduler/ctl/checkpoints_command.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/residual_check.h"
#include "common/model/model.h"
#include "common/model/zoo/zoo.h"
#include "common/system/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/ctl/text/exit_codes.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace syncline::ctl {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointsCommandTest : public ::testing::Test {
 protected:
  Console console(bool json = false) {
    out_.str("");
    err_.str("");
    return {.out = out_, .err = err_, .json = json};
  }
  // A checkpoint of the zoo's smallest model; its files are not read here.
  std::string Make(const std::string& job, int64_t clock, uint64_t cut_id,
                   bool whole = true) {
    const std::string path = dir_.File(
        absl::StrCat(job, "/", CheckpointName{clock, cut_id}.ToString()));
    EXPECT_OK(MakeDirs(path));
    if (!whole) return path;
    JobAssignment assignment;
    assignment.set_job_id(job);
    assignment.mutable_spec()->set_name("small");
    assignment.set_attempt(3);
    const auto model = Model::Parse(ModelBytes(), "small");
    EXPECT_OK(model.status());
    for (const Initializer& one : (*model)->graph().initializers) {
      const Value& value = (*model)->graph().values[one.value];
      ParameterInfo* const parameter = assignment.add_parameters();
      parameter->set_name(value.name);
      for (const int64_t dim : value.dims) parameter->add_dims(dim);
    }
    TableInfo* const table = assignment.add_tables();
    table->set_name("emb");
    table->set_dim(2);
    table->set_slots(256);
    CheckpointParts parts;
    parts.cut_id = cut_id;
    parts.clocks = {clock};
    parts.total_clocks = 100;
    parts.shards.resize(1);
    parts.shards[0].set_file(ShardFileName(0, 1));
    parts.shards[0].set_bytes(2048);
    parts.time = absl::FromUnixSeconds(1'700'000'000);
    EXPECT_OK(
        WriteManifest(path, *EncodeManifest(MakeManifest(assignment, parts))));
    return path;
  }
  static std::string ModelBytes() {
    return *WriteZooModel("mlp",
                          {{"inputs", "2"}, {"hidden", "3"}, {"classes", "2"}});
  }
  // Tools whose checkpoint has 7 in every value, and one row.
  CheckpointTools Tools() {
    return {.read = [this](const std::string& path,
                           const CheckpointManifest& manifest,
                           std::vector<std::vector<float>>* values,
                           const CheckpointTools::Rows& rows) -> absl::Status {
              read_ = path;
              if (!damage_.ok()) return damage_;
              if (values != nullptr) {
                values->clear();
                for (const ParameterInfo& parameter : manifest.parameters()) {
                  int64_t count = 1;
                  for (const int64_t dim : parameter.dims()) count *= dim;
                  values->emplace_back(count, 7.0f);
                }
              }
              return rows == nullptr ? absl::OkStatus() : rows(0, {5}, {1, 2});
            },
            .write_tensors =
                [](const std::string& path, const CheckpointManifest&,
                   const std::vector<std::vector<float>>& values) {
                  return WriteFileAtomically(path,
                                             std::to_string(values.size()));
                },
            .write_rows = [](const std::string& path, const std::string&,
                             int64_t dim)
                -> absl::StatusOr<std::unique_ptr<CheckpointTools::RowsFile>> {
              EXPECT_EQ(dim, 2);
              return std::make_unique<Rows>(path);
            }};
  }
  class Rows final : public CheckpointTools::RowsFile {
   public:
    explicit Rows(const std::string& path) : file_(path) {}
    absl::Status Add(absl::Span<const int64_t> keys,
                     absl::Span<const float>) override {
      for (const int64_t key : keys) file_ << key << ' ';
      return absl::OkStatus();
    }
    absl::Status Finish() override {
      file_ << "end";
      file_.close();
      return absl::OkStatus();
    }

   private:
    std::ofstream file_;
  };
  std::string Written(const std::string& name) const {
    return ReadFile(dir_.File(name), 1 << 20).value_or("");
  }

  const TempDir dir_;
  std::ostringstream out_;
  std::ostringstream err_;
  std::string read_;
  absl::Status damage_;
};

TEST_F(CheckpointsCommandTest, ListsThoseOfAJobAndOfAll) {
  const std::string first = Make("j-1", 10, 5);
  const std::string half = Make("j-1", 20, 6, /*whole=*/false);
  Make("j-2", 30, 7);
  ASSERT_EQ(RunCheckpointsList(dir_.File("j-1/"), console()), kExitOk);
  EXPECT_THAT(out_.str(),
              HasSubstr(absl::StrCat("2.0 KiB  attempt 3  j-1  ", first)));
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat(half, "  no manifest")));
  EXPECT_THAT(out_.str(), Not(HasSubstr("j-2")));
  ASSERT_EQ(RunCheckpointsList(dir_.path(), console()), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("j-2"));
  ASSERT_EQ(RunCheckpointsList(dir_.path(), console(/*json=*/true)), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"clock\":\"30\""));
  EXPECT_EQ(RunCheckpointsList(first, console()), kExitOk);
  EXPECT_THAT(err_.str(), HasSubstr("which is one itself"));
  EXPECT_NE(RunCheckpointsList(dir_.File("none"), console()), kExitOk);
  EXPECT_THAT(err_.str(), HasSubstr("no folder"));
}

TEST_F(CheckpointsCommandTest, ShowsTheManifest) {
  const std::string path = Make("j-1", 10, 5);
  ASSERT_EQ(RunCheckpointsShow(path, console()), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("clock        10 of 100"));
  EXPECT_THAT(out_.str(), HasSubstr("table        emb, rows of 2"));
  EXPECT_THAT(out_.str(), Not(HasSubstr("an older file")));
  const std::string older =
      OlderStateFile(absl::StrCat(path, "/", ShardFileName(0, 1)), 4);
  ASSERT_OK(WriteFileAtomically(older, "x"));
  ASSERT_EQ(RunCheckpointsShow(path, console()), kExitOk);
  EXPECT_THAT(out_.str(),
              HasSubstr(absl::StrCat(fs::path(older).filename().string(),
                                     "  an older file that it needs")));
  ASSERT_EQ(RunCheckpointsShow(path, console(/*json=*/true)), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("\"job_id\":\"j-1\""));
  EXPECT_NE(RunCheckpointsShow(dir_.path(), console()), kExitOk);
  EXPECT_THAT(err_.str(), HasSubstr("no manifest"));
}

TEST_F(CheckpointsCommandTest, VerifyReadsEveryByteAndSaysWhatIsWrong) {
  const std::string path = Make("j-1", 10, 5);
  ASSERT_EQ(RunCheckpointsVerify(path + "/", Tools(), console()), kExitOk);
  EXPECT_EQ(read_, path);
  EXPECT_THAT(out_.str(), HasSubstr("whole, 2.0 KiB of its own"));
  damage_ = absl::DataLossError("shard 0 is torn");
  EXPECT_NE(RunCheckpointsVerify(path, Tools(), console()), kExitOk);
  EXPECT_THAT(err_.str(), HasSubstr("shard 0 is torn"));
}

// Residuals of compressed gradients are beside the checkpoint, which is whole
// without them.
TEST_F(CheckpointsCommandTest, ResidualsAreCountedAndRead) {
  const std::string path = Make("j-1", 10, 5);
  ASSERT_OK(WriteFileAtomically(absl::StrCat(path, "/", ResidualFileName(0, 1)),
                                "damaged"));
  ASSERT_EQ(RunCheckpointsList(dir_.path(), console()), kExitOk);
  EXPECT_THAT(out_.str(), HasSubstr("2.0 KiB + 7 B residuals  attempt 3"));
  ASSERT_EQ(RunCheckpointsShow(path, console()), kExitOk);
  EXPECT_THAT(out_.str(),
              HasSubstr("residuals    residuals-00000-of-00001.state  7 B"));
  EXPECT_NE(RunCheckpointsVerify(path, Tools(), console()), kExitOk);
  EXPECT_THAT(err_.str(),
              AllOf(HasSubstr("the checkpoint is whole, but a worker that goes "
                              "on from it begins its residuals anew"),
                    HasSubstr("residuals-00000-of-00001.state")));
}

TEST_F(CheckpointsCommandTest, ExportsTensorsAndRows) {
  const std::string path = Make("j-1", 10, 5);
  const std::string to = dir_.File("out/model.safetensors");
  ASSERT_EQ(RunCheckpointsExport({path, to, ""}, Tools(), console()), kExitOk)
      << err_.str();
  EXPECT_EQ(Written("out/model.safetensors"), "4");
  EXPECT_THAT(out_.str(), HasSubstr(absl::StrCat(
                              to, ": written; the rows of 1 table are in ",
                              dir_.File("out/tables"))));
  EXPECT_EQ(Written("out/tables/emb.safetensors"), "5 end");
  // One that fails leaves it as it is, and nothing of its own.
  CheckpointTools tools = Tools();
  tools.write_tensors = [](const auto&, const auto&, const auto&) {
    return absl::ResourceExhaustedError("no room");
  };
  tools.read = [](const auto&, const auto&, auto*, const auto& rows) {
    return rows(0, {6}, {1, 2});
  };
  EXPECT_NE(RunCheckpointsExport({path, to, ""}, tools, console()), kExitOk);
  EXPECT_EQ(Written("out/tables/emb.safetensors"), "5 end");
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(dir_.File("out"))) {
    files += entry.is_regular_file();
  }
  EXPECT_EQ(files, 2);
}

TEST_F(CheckpointsCommandTest, RowsOfAnotherExportAreNotReplaced) {
  const std::string path = Make("j-1", 10, 5);
  ASSERT_OK(MakeDirs(dir_.File("out/tables")));
  const std::string rows =
      dir_.Write("out/tables/emb.safetensors", "of first.safetensors");
  const std::string second = dir_.File("out/second.safetensors");
  EXPECT_NE(RunCheckpointsExport({path, second, ""}, Tools(), console()),
            kExitOk);
  EXPECT_THAT(err_.str(), AllOf(HasSubstr(rows), HasSubstr("another export")));
  EXPECT_EQ(Written("out/tables/emb.safetensors"), "of first.safetensors");
  EXPECT_FALSE(std::filesystem::exists(second));
  // The same export once more.
  dir_.Write("out/second.safetensors", "");
  EXPECT_EQ(RunCheckpointsExport({path, second, ""}, Tools(), console()),
            kExitOk)
      << err_.str();
}

TEST_F(CheckpointsCommandTest, ATableOfAStrangersNameLeadsNowhereElse) {
  const std::string path = Make("j-1", 10, 5);
  for (const char* const name : {"../x", "/tmp/x", "a/../../x", ""}) {
    auto manifest = ReadManifest(path);
    ASSERT_OK(manifest.status());
    manifest->mutable_tables(0)->set_name(name);
    std::filesystem::remove(path + "/manifest");
    ASSERT_OK(WriteManifest(path, *EncodeManifest(*manifest)));
    EXPECT_NE(
        RunCheckpointsExport({path, dir_.File("out/model.safetensors"), ""},
                             Tools(), console()),
        kExitOk);
    EXPECT_THAT(err_.str(), HasSubstr("is no name of a file"));
  }
  EXPECT_FALSE(std::filesystem::exists(dir_.File("out")));
}

TEST_F(CheckpointsCommandTest, ExportsTheSubmittedModelWithTheValues) {
  const std::string path = Make("j-1", 10, 5);
  const std::string model = dir_.Write("submitted.onnx", ModelBytes());
  const std::string to = dir_.File("trained.onnx");
  // Of another model.
  const std::string other = dir_.Write(
      "other.onnx",
      *WriteZooModel("mlp",
                     {{"inputs", "2"}, {"hidden", "4"}, {"classes", "2"}}));
  EXPECT_NE(RunCheckpointsExport({path, to, other}, Tools(), console()),
            kExitOk);
  auto manifest = ReadManifest(path);
  ASSERT_OK(manifest.status());
  manifest->clear_tables();
  ASSERT_OK(WriteManifest(path, *EncodeManifest(*manifest)));
  CheckpointTools tools = Tools();
  tools.read = [read = tools.read](const auto& folder, const auto& of,
                                   auto* values, const auto&) {
    return read(folder, of, values, nullptr);
  };
  ASSERT_EQ(RunCheckpointsExport({path, to, model}, tools, console()), kExitOk)
      << err_.str();
  const auto bytes = ReadFile(to, 1 << 20);
  ASSERT_OK(bytes.status());
  const auto written = Model::Parse(*bytes, "written");
  ASSERT_OK(written.status());
  for (const Initializer& one : (*written)->graph().initializers) {
    EXPECT_EQ(one.tensor.floats()[0], 7.0f);
  }
}

TEST_F(CheckpointsCommandTest, ExportSaysWhatItNeeds) {
  const std::string path = Make("j-1", 10, 5);
  for (const auto& [to, model, text] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"m.bin", "", "ends neither with .safetensors nor with .onnx"},
           {"m.onnx", "", "--model"},
           {"m.safetensors", "m.onnx", "--model"}}) {
    EXPECT_NE(RunCheckpointsExport({path, to, model}, Tools(), console()),
              kExitOk);
    EXPECT_THAT(err_.str(), HasSubstr(text));
  }
}

TEST_F(CheckpointsCommandTest, OnlyCheckpointsAreDeleted) {
  const std::string path = Make("j-1", 10, 5);
  const std::string half = Make("j-1", 20, 6, /*whole=*/false);
  EXPECT_NE(RunCheckpointsDelete({path, dir_.File("j-1")}, console()), kExitOk);
  EXPECT_TRUE(std::filesystem::exists(path)) << "all are looked at before";
  ASSERT_EQ(RunCheckpointsDelete({path + "/", half}, console()), kExitOk);
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(half));
}

}  // namespace
}  // namespace syncline::ctl
