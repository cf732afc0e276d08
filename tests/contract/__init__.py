"""What every implementation of something must do, as test classes that the tests of each of them inherit."""
