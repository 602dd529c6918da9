"""What tests are written with: frames, scenes, screens, programs in a terminal. Nothing here is a test."""
