"""The report: a result as one HTML file that opens from disk and can be mailed. Its findings, figures and page."""
