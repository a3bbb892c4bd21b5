#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/status.h"

namespace dovetail {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() : folder_(std::filesystem::path(::testing::TempDir()) / StrCat("atomic_file_", static_cast<int64_t>(::getpid()))) {
    std::filesystem::create_directories(folder_);
    std::ofstream(path()) << "before";
  }
  ~AtomicFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return folder_ / "file"; }
  std::string content() const {
    std::ifstream in(path());
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const { return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {})); }

  std::filesystem::path folder_;
};

TEST_F(AtomicFileTest, WhatIsNotCommittedLeavesTheOldFile) {
  {
    auto file = AtomicFile::Create(path());
    ASSERT_TRUE(file.ok() && (*file)->Write("after", 5).ok());
    EXPECT_EQ(files(), 2u);
  }
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(content(), "before");
  auto file = AtomicFile::Create(path());
  ASSERT_TRUE(file.ok() && (*file)->Write("after", 5).ok() && (*file)->Commit().ok());
  EXPECT_EQ(files(), 1u);
  EXPECT_EQ(content(), "after");
}

TEST_F(AtomicFileTest, ASignalLeavesNothingHalfWritten) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const auto write = [&] {
      RemoveUnfinishedFilesOnSignals();
      auto done = AtomicFile::Create(path()), unfinished = AtomicFile::Create(folder_ / "other");
      if (!done.ok() || !unfinished.ok() || !(*done)->Write("after", 5).ok() || !(*done)->Commit().ok() || files() != 2) ::_exit(1);
      ::raise(signal);
    };
    ::signal(signal, SIG_DFL);
    EXPECT_EXIT(write(), ::testing::KilledBySignal(signal), "");
    EXPECT_EQ(files(), 1u);
    EXPECT_EQ(content(), "after");
  }
}

TEST_F(AtomicFileTest, ALimitOnTheSizeIsAnError) {
  const auto write = [&] {
    RemoveUnfinishedFilesOnSignals();
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    auto file = AtomicFile::Create(path());
    const std::string data(10000, 'x');
    const Code code = file.ok() ? (*file)->Write(data.data(), data.size()).code() : Code::kOk;
    file->reset();
    ::_exit(code == Code::kIo && files() == 1 ? 0 : 1);
  };
  EXPECT_EXIT(write(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(content(), "before");
}

}  // namespace
}  // namespace dovetail
