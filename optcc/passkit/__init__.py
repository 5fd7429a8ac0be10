"""The public interface for authors of passes."""
